#pragma once

// Messages between two ranks: torch.distributed's send, recv and batch_isend_irecv. isend and irecv are in
// comm/async.h.
//
// Between two ranks, messages of one direction are received in the order in which they are sent, and have the same
// dtype, number of elements and tag: any other is an Error on the receiver that names both sides, and ends the group.
// The order of calls between messages and collectives is to be such that a rank that waits for a message is not waited
// for in a collective by the one that is to send it. Tensors are dense and on the CPU, of any dtype and strides;
// strided ones cost a copy. UsageError, before anything moves: a tensor of another kind, a lazy conjugate among them;
// one to receive into of which several elements are one (expand()); a peer that is no rank of the group, or this one; a
// tag that is not one of 0 to 65535.
//
// A wait ends with GroupAborted when a rank has failed, died or left, or when nothing has moved for the group's
// timeout; the failure names the peer and the call, and the peer's step, or over a network this rank's.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/device_streams.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/messages.h"

namespace lockstep::comm {

/// Returns when the peer has the tensor, or, over a network, when the network has it.
void send(Group& group, const at::Tensor& tensor, int peer, int tag = 0);
/// Replaces the tensor by that of the peer.
void recv(Group& group, const at::Tensor& tensor, int peer, int tag = 0);

/// A message to be.
struct P2POp {
  Way way = Way::send;
  at::Tensor tensor;
  int peer = 0;
  int tag = 0;
};
/// All of them at the same time, so that ranks which send to each other do not wait for each other. Returns when all
/// are done; torch.distributed's returns works to wait for, as AsyncCollectives's does.
void batch_isend_irecv(Group& group, const std::vector<P2POp>& ops);

/// An object in whatever bytes the caller writes it in; torch.distributed's send_object_list. Two messages.
void send_bytes(Group& group, const std::string& bytes, int peer, int tag = 0);
std::string recv_bytes(Group& group, int peer, int tag = 0);

/// A barrier with a deadline of its own, at most half of the group's timeout, to which longer ones are cut: when ranks
/// have not come by then, all of them are named in an Error on rank 0, and the group ends. Where rank 0 is late itself,
/// the others say so after twice the time. Rank 0 hears from each rank; a plain barrier names the late ones, too, and
/// is faster.
void monitored_barrier(Group& group, std::chrono::milliseconds timeout);

/// One P2POp on its way. `ended`, if any, is called once, in the thread that moves it: with nothing when it is done,
/// else with what it threw; it throws nothing.
class Transfer {
 public:
  using Ended = std::function<void(std::exception_ptr)>;
  /// UsageError for an op that cannot be.
  Transfer(P2POp op, int rank, int size, Ended ended = {});

  Message& message() { return message_; }
  /// Puts what has been received where it is to be.
  void finish();
  void tell(const std::exception_ptr& error) const;

 private:
  P2POp op_;
  CallersStream stream_;
  at::Tensor dense_;
  bool in_place_ = false;  ///< dense_ is the caller's memory
  Message message_;
  Ended ended_;
};

/// Moves all that next() gives; null: there is none now. It is asked as long as any is under way, so later ones join
/// the earlier ones. Returns when none is. What it throws, all under way are told as well.
void carry(Group& group, const std::function<std::shared_ptr<Transfer>()>& next);

}  // namespace lockstep::comm
