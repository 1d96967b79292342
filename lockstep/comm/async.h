#pragma once

// Collectives that return before they are done; torch.distributed's async_op=True.
//
//   comm::AsyncCollectives async(comm::duplicate(*world.group()));
//   comm::Work work = async.all_reduce(tensor);
//   ...                                       // anything that leaves the tensor alone
//   work.wait();

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/comm/point_to_point.h"

namespace lockstep::comm {

/// A collective under way. Copies mean the same one. May be used by any thread, and outlive what made it.
class Work {
 public:
  /// Whether it has ended, well or not.
  bool is_completed() const;
  /// Returns when it has ended; throws what it threw, each time. The waits of a collective have the deadline of their
  /// group, so this has, too: that of each collective before it in the queue and its own. Messages that are under way
  /// at the same time have one deadline, which begins anew with each that moves or is begun.
  void wait() const;
  /// The same with a deadline of its own: Error when it has not ended by then. The collective goes on.
  void wait(std::chrono::milliseconds timeout) const;

 private:
  friend class AsyncCollectives;
  struct State {
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
    std::exception_ptr error;
  };
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// Runs the collectives of a group in a thread of its own, one after another in the order of the calls, which is to be
/// the same on all ranks. The thread sleeps when there is nothing to do. Calls may come from any thread.
///
/// A tensor belongs to its collective until that has ended: neither read nor written, kept alive by it. That of a
/// device is read and written in the queue that is the caller's current one at the call: behind what is there then.
///
/// The destructor returns when all that was called has ended, each collective within its group's deadline. During the
/// unwinding of an exception peers may never come: then it aborts the group unless all has ended.
class AsyncCollectives {
 public:
  /// The group is for this object alone from now on: duplicate() (comm/collectives.h) or new_group() makes one.
  explicit AsyncCollectives(std::shared_ptr<Group> group);
  ~AsyncCollectives();
  AsyncCollectives(const AsyncCollectives&) = delete;
  AsyncCollectives& operator=(const AsyncCollectives&) = delete;

  Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum);
  Work reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::sum);
  Work broadcast(const at::Tensor& tensor, int root = 0);
  /// Copies the tensor of rank r into outputs[r]; UsageError from wait() unless there are as many as ranks.
  Work all_gather(std::vector<at::Tensor> outputs, const at::Tensor& tensor);
  Work all_to_all(const at::Tensor& output, const at::Tensor& input);
  Work barrier();
  /// comm/point_to_point.h; UsageError at once. Messages that follow one another in the queue are under way at the same
  /// time, so that ranks may send to each other, and are done each for itself; a collective behind them waits for all.
  Work isend(const at::Tensor& tensor, int peer, int tag = 0);
  Work irecv(const at::Tensor& tensor, int peer, int tag = 0);
  std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& ops);
  /// Anything else, as one item of the queue: what it captures it keeps alive. On a device it has the queues of the
  /// object's own thread.
  Work run(std::function<void(Group&)> collective);

  /// Whether all that was called has ended.
  bool is_idle() const;
  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }

 private:
  /// A collective, or a message.
  struct Item {
    std::function<void(Group&)> collective;
    std::shared_ptr<Transfer> transfer;
    std::shared_ptr<Work::State> state;
  };
  template <class Body>
  Work run_for(const at::Tensor& tensor, Body&& body);
  Work add(Item item);
  Item transfer_of(const P2POp& op);
  void run_queue();
  std::shared_ptr<Transfer> next_transfer();
  void end(Work::State& state, const std::exception_ptr& error);

  std::shared_ptr<Group> group_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  std::size_t unfinished_ = 0;  ///< in the queue and under way
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace lockstep::comm
