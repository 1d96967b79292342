#pragma once

// Streams whose pieces are messages of MPI, copied through memory of their own: MPI may go on reading and writing it
// when a group has failed and its callers' tensors are gone. Half a MiB for each peer, made with its first message.

#include <memory>
#include <vector>

#include "lockstep/comm/network/mpi_session.h"
#include "lockstep/comm/network/streams.h"

namespace lockstep::comm {

/// For the ranks of a mesh, all of which have started the session. `tag` is the same on each, and no other group's of
/// any two of them.
std::unique_ptr<Streams> mpi_streams(MpiSession& session, const Mesh& mesh, int tag);

}  // namespace lockstep::comm
