#pragma once

// In which order, and in which thread, the collectives of a group are made.
//
// There is one order for all of a group: that of the calls. A call that the program waits for runs in the caller's
// thread when nothing is before it, which spares two switches between threads. Others run in a thread that is started
// by the first of them. What a callback calls in that thread runs at once, before what the program has called
// meanwhile: so the order of collectives is the same on all ranks, where callbacks are attached before the next call.
//
// Messages between two ranks are moved in that thread; those that follow one another in the queue at the same time.

#include <c10/util/intrusive_ptr.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/comm/point_to_point.h"
#include "python/work.h"

namespace lockstep::python {

class Turns {
 public:
  /// `suffix` ends the messages of the group's failures.
  Turns(std::shared_ptr<comm::Group> group, std::string suffix);
  ~Turns() { leave(); }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// Not so in a child that it has forked, where the thread is not.
  bool is_this_process() const;

  /// Any thread may call it. Afterwards `work` may be under way still.
  void add(const c10::intrusive_ptr<Work>& work, bool caller_waits);
  /// The same for a message, which `work` stands for. UsageError when it cannot be.
  void add(const c10::intrusive_ptr<Work>& work, comm::P2POp op);
  /// Ends all that was added, each collective within the group's deadline, and leaves the group. Then nothing can be
  /// added: ValueError. In a forked child it does nothing: the group is the parent's.
  void close();

  /// The same when nobody waits for the rest: peers may never come to it, so where work is left the group is aborted.
  void leave();
  /// Fails the group, whoever waits; comm::Group::abort.
  void abort(const std::string& cause);

 private:
  /// A collective of its work, or a message.
  struct Turn {
    c10::intrusive_ptr<Work> work;
    std::shared_ptr<comm::Transfer> transfer;
  };
  void queue(Turn turn, std::unique_lock<std::mutex> lock);
  void run_queue();
  void carry(const std::function<std::shared_ptr<comm::Transfer>()>& next);
  std::shared_ptr<comm::Transfer> next_transfer();
  bool is_unfinished();

  std::shared_ptr<comm::Group> group_;
  const std::string suffix_;
  const int rank_;
  const int process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Turn> queue_;
  std::vector<c10::intrusive_ptr<Work>> with_callbacks_;  ///< messages that have ended; of the thread that moves them
  bool busy_ = false;                                     ///< a collective is under way, here or in the thread
  bool closed_ = false;
  std::unique_ptr<std::thread> thread_;
  std::thread::id worker_;  ///< of thread_
};

}  // namespace lockstep::python
