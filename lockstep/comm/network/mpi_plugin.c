// The table of the MPI whose mpi.h this is compiled with.

#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "lockstep/comm/network/mpi_table.h"

_Static_assert(sizeof(MPI_Request) <= sizeof(LockstepMpiRequest), "a request has room");

static MPI_Comm comm = MPI_COMM_NULL;

static MPI_Request request_of(const LockstepMpiRequest* kept) {
  MPI_Request request;
  memcpy(&request, &kept->bits, sizeof request);
  return request;
}

static int keep(MPI_Request request, LockstepMpiRequest* kept, int error) {
  kept->bits = 0;
  memcpy(&kept->bits, &request, sizeof request);
  return error;
}

static int level_of(int provided) {
  switch (provided) {
    case MPI_THREAD_SINGLE:
      return LOCKSTEP_MPI_SINGLE;
    case MPI_THREAD_FUNNELED:
      return LOCKSTEP_MPI_FUNNELED;
    case MPI_THREAD_SERIALIZED:
      return LOCKSTEP_MPI_SERIALIZED;
    default:
      return LOCKSTEP_MPI_MULTIPLE;
  }
}

static int init(int* ours, int* level) {
  int provided = MPI_THREAD_SINGLE, is_there = 0, error = MPI_Initialized(&is_there);
  if (error != MPI_SUCCESS) return error;
  *ours = !is_there;
  error = is_there ? MPI_Query_thread(&provided) : MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
  *level = level_of(provided);
  if (error == MPI_SUCCESS && *ours) error = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return error;
}

static int place(int* rank, int* size) {
  const int error = MPI_Comm_rank(MPI_COMM_WORLD, rank);
  return error != MPI_SUCCESS ? error : MPI_Comm_size(MPI_COMM_WORLD, size);
}

static int open_comm(LockstepMpiRequest* kept) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
  return keep(request, kept, error);
}

// Called first when the communicator is there.
static int highest_tag(int* tag) {
  int* found = NULL;
  int is_set = 0;
  int error = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  if (error == MPI_SUCCESS) error = MPI_Comm_get_attr(comm, MPI_TAG_UB, &found, &is_set);
  *tag = is_set ? *found : 32767;  // what each has at least
  return error;
}

static int send_bytes(const void* bytes, size_t size, int rank, int tag, LockstepMpiRequest* kept) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = MPI_Isend(bytes, (int)size, MPI_BYTE, rank, tag, comm, &request);
  return keep(request, kept, error);
}

static int receive_bytes(void* bytes, size_t size, int rank, int tag, LockstepMpiRequest* kept) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = MPI_Irecv(bytes, (int)size, MPI_BYTE, rank, tag, comm, &request);
  return keep(request, kept, error);
}

static int barrier(LockstepMpiRequest* kept) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int error = MPI_Ibarrier(comm, &request);
  return keep(request, kept, error);
}

static int test(LockstepMpiRequest* kept, int* done, size_t* size) {
  MPI_Request request = request_of(kept);
  MPI_Status status;
  const int error = MPI_Test(&request, done, &status);
  int count = 0;
  if (error == MPI_SUCCESS && *done) MPI_Get_count(&status, MPI_BYTE, &count);
  *size = count > 0 ? (size_t)count : 0;
  return keep(request, kept, error);
}

static int cancel(LockstepMpiRequest* kept) {
  MPI_Request request = request_of(kept);
  return MPI_Cancel(&request);
}

static int is_finalized(void) {
  int is = 0;
  return MPI_Finalized(&is) == MPI_SUCCESS && is;
}

static void text(int error, char* to, size_t room) {
  char whole[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, whole, &length);
  snprintf(to, room, "%s", whole);
}

const LockstepMpi* lockstep_mpi(void);
const LockstepMpi* lockstep_mpi(void) {
  static const LockstepMpi table = {
      .version = LOCKSTEP_MPI_VERSION,
#ifdef OPEN_MPI
      .name = "Open MPI",
#else
      .name = "MPICH",
#endif
      .init = init,
      .place = place,
      .open = open_comm,
      .highest_tag = highest_tag,
      .send = send_bytes,
      .receive = receive_bytes,
      .barrier = barrier,
      .test = test,
      .cancel = cancel,
      .is_finalized = is_finalized,
      .finalize = MPI_Finalize,
      .text = text,
  };
  return &table;
}
