#pragma once

// What the library calls of an MPI, whose mpi.h it has never seen: each plug-in (mpi_plugin.c, built once per mpi.h)
// fills this table. C, no torch. Calls return 0 or MPI's error. They are made by one thread at a time.

#include <stddef.h>
#include <stdint.h>

#define LOCKSTEP_MPI_VERSION 1
#define LOCKSTEP_MPI_SYMBOL "lockstep_mpi"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOCKSTEP_MPI_SINGLE, LOCKSTEP_MPI_FUNNELED, LOCKSTEP_MPI_SERIALIZED, LOCKSTEP_MPI_MULTIPLE };

// An MPI_Request of whatever kind.
typedef struct LockstepMpiRequest {
  uint64_t bits;
} LockstepMpiRequest;

typedef struct LockstepMpi {
  uint32_t version;  // LOCKSTEP_MPI_VERSION
  const char* name;  // "Open MPI"
  // Unless it is initialised already, with LOCKSTEP_MPI_SERIALIZED. `ours`: whether this call did. `level`: what it
  // has.
  int (*init)(int* ours, int* level);
  int (*place)(int* rank, int* size);
  // Begins to make a communicator of all ranks for the calls below; test() says when it is there.
  int (*open)(LockstepMpiRequest* request);
  // Of that communicator.
  int (*highest_tag)(int* tag);
  int (*send)(const void* bytes, size_t size, int rank, int tag, LockstepMpiRequest* request);
  int (*receive)(void* bytes, size_t size, int rank, int tag, LockstepMpiRequest* request);
  int (*barrier)(LockstepMpiRequest* request);
  // `size`: of what was received.
  int (*test)(LockstepMpiRequest* request, int* done, size_t* size);
  // Asks for its end, which test() sees.
  int (*cancel)(LockstepMpiRequest* request);
  int (*is_finalized)(void);
  int (*finalize)(void);
  void (*text)(int error, char* to, size_t room);
} LockstepMpi;

typedef const LockstepMpi* (*LockstepMpiTable)(void);

#ifdef __cplusplus
}
#endif
