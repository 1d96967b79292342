#pragma once

// Streams whose pieces are messages of a c10d::Backend: libtorch's Gloo, and what others have written for
// torch.distributed. Of its functions send() and recv() are used, of bytes in the host's memory, and no collective: so
// what a group does over it is the same whatever the backend makes of bool, NaN, a mean or a deadline.
//
// Not every Work says whether it is through (Gloo's for messages does not), so threads wait: for each peer one for what
// goes there and one for what comes, from the first message on. Bytes are copied through memory of their own: a backend
// may go on reading and writing it when a group has failed and its callers' tensors are gone. A quarter of a MiB each
// way for each peer, made with its first message.

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "lockstep/comm/network/streams.h"

namespace lockstep::comm {

/// For the ranks of a mesh, which are called by their numbers in the backend; its connections for payload are closed.
/// Nobody else uses the backend from now on. Its send() and recv() return before the peer has called, and while other
/// threads wait for messages. It keeps the order of what one rank sends another with the same tag, and takes those of
/// different tags for different streams, which groups of some ranks need. What it says of a message that fails is taken
/// for the end of the way to that message's peer. Where a wait has to end early it is told so by Work::abort(), and if
/// that is not there by Backend::abort(); who ends no wait by either keeps the thread that waits, and what that needs,
/// as long as it likes.
std::unique_ptr<Streams> c10d_streams(c10::intrusive_ptr<c10d::Backend> backend, Mesh& mesh);

}  // namespace lockstep::comm
