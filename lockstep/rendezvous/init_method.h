#pragma once

// Where the ranks of a job meet, as torch.distributed.init_process_group is told.
//
//   env://            what a launcher has put into the environment (environment.h). Rank and world size that are given
//                     take the place of RANK and WORLD_SIZE; both, and no LOCAL_RANK and LOCAL_WORLD_SIZE: as
//                     tcp://$MASTER_ADDR:$MASTER_PORT
//   tcp://host:port   rank 0 listens there
//   file:///path      rank 0 writes there where it listens (address_file.h)

#include <string>

#include "lockstep/rendezvous/environment.h"

namespace lockstep::rendezvous {

/// What carries the bytes of a group: shared memory where it can and TCP elsewhere, or one of them, or MPI or Gloo in
/// TCP's place; or as the first, and NCCL those of devices, or memory of devices that the ranks of one node share.
enum class Backend { automatic, shm, tcp, mpi, gloo, nccl, ipc };

/// "auto", also by its other name "hierarchical", "shm", "tcp", "mpi", "gloo", "nccl" or "ipc". UsageError for another
/// name, with the nearest.
Backend parse_backend(const std::string& name);
const char* to_string(Backend backend);
/// Whether messages carry them where all ranks share a node, too.
bool is_over_network(Backend backend);

/// The part of init()'s options that says who this rank is and where it meets the others.
struct InitMethod {
  std::string url = "env://";
  int rank = -1;  ///< -1: not given
  int world_size = -1;
  Backend backend = Backend::automatic;

  bool operator==(const InitMethod&) const = default;
};

/// Pure. UsageError, one line that names what is given and what would be right. The place knows no nodes yet where no
/// launcher has told them.
Place place_by(const InitMethod& method, const GetEnv& get);

/// The same in this process's environment.
Place place_by(const InitMethod& method);

}  // namespace lockstep::rendezvous
