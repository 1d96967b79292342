#pragma once

// The agent's one event loop: descriptors that become readable, points in time, and a console that may stand still.
// Who waits for something registers a handler, in whatever file it lives; nothing is polled.
//
// Events come in the order in which they happened, that of epoll's ready list: who of two workers ended first is known
// by it. Only a descriptor that had an event in the turn before is still in its old place there, and may come too
// early. Then the timers that are due, the earliest first. What the agent has said and a terminal has not taken yet is
// written while the loop waits.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "lockstep/base/outlet.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {

/// For one thread. A handler may register and end whatever it likes, itself too: what is ended is not called any more,
/// even if its event has happened already. What a handler throws leaves turn(); the events behind it come with the
/// next turn.
class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Handler = std::function<void()>;

  /// A watch or a timer; its destruction ends it. Must not outlive the loop, and a watch not its descriptor.
  class Handle {
   public:
    Handle() = default;
    Handle(Handle&& other) noexcept : loop_(std::exchange(other.loop_, nullptr)), id_(other.id_) {}
    Handle& operator=(Handle&& other) noexcept {  // ends what it held
      Handle taken(std::move(other));
      std::swap(loop_, taken.loop_);
      std::swap(id_, taken.id_);
      return *this;
    }
    ~Handle() {
      if (loop_ != nullptr) loop_->end(id_);
    }

   private:
    friend class EventLoop;
    Handle(EventLoop& loop, std::uint64_t id) : loop_(&loop), id_(id) {}

    EventLoop* loop_ = nullptr;
    std::uint64_t id_ = 0;
  };

  /// `console` is written to while the loop waits; it stays the caller's. Throws Error.
  explicit EventLoop(base::Outlet& console);
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Calls `handler` in each turn in which `fd` can be read (with `also_room`: or written to) or has been hung up. One
  /// watch for a descriptor. Throws Error, also for what is always readable (a file).
  [[nodiscard]] Handle watch(int fd, Handler handler, bool also_room = false);
  /// Calls `handler` once, in the first turn that ends at `time` or later.
  [[nodiscard]] Handle at(Clock::time_point time, Handler handler);

  /// Waits for an event, a timer or the deadline, and calls the handlers of all that has come.
  void turn(Clock::time_point deadline = Clock::time_point::max());
  /// Turns until `done`, which is asked before each turn and after the last. That one begins at the deadline or later,
  /// so what has happened by then is seen, also when a handler takes longer; false when `done` was false even so.
  bool run_until(const std::function<bool()>& done, Clock::time_point deadline = Clock::time_point::max());

 private:
  struct Watched {
    int fd = -1;
    std::shared_ptr<const Handler> handler;  // shared with the call: a handler may end its own watch
  };

  void end(std::uint64_t id);
  void hand_out_events();
  void hand_out_timers();

  base::Outlet& console_;
  base::UniqueFd epoll_;
  std::uint64_t next_id_ = 0;  // never given twice: an event that waits for an ended watch finds nobody
  std::map<std::uint64_t, Watched> watches_;
  std::map<std::pair<Clock::time_point, std::uint64_t>, Handler> timers_;
};

}  // namespace lockstep::launch
