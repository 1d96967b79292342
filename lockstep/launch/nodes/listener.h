#pragma once

// A listening socket on the event loop. Where this process has no descriptor left for who comes, the socket stays
// readable: looked at all the time it would take a whole core, so it is left alone for a moment.

#include <cerrno>
#include <chrono>
#include <functional>
#include <utility>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launch {

/// How long nobody is let in when no descriptor was left.
inline constexpr std::chrono::milliseconds kWithoutDescriptors{100};

class Listener {
 public:
  /// `fd` listens already. `come`: somebody waits; it takes accept() until nobody does, or some.
  Listener(EventLoop& loop, base::UniqueFd fd, std::function<void()> come)
      : loop_(loop), fd_(std::move(fd)), come_(std::move(come)) {
    watch();
  }

  /// None: nobody waits, or no descriptor is left (none_left()).
  base::UniqueFd accept() {
    base::UniqueFd guest = rendezvous::accept_at(fd_.get());
    none_left_ = !guest && (errno == EMFILE || errno == ENFILE);
    if (none_left_) {
      watch_ = {};
      again_ = loop_.at(EventLoop::Clock::now() + kWithoutDescriptors, [this] { watch(); });
    }
    return guest;
  }
  bool none_left() const { return none_left_; }

  /// Nobody else is let in, and the address is free for others.
  void shut() {
    watch_ = {};
    again_ = {};
    fd_ = {};
  }

 private:
  void watch() { watch_ = loop_.watch(fd_.get(), come_); }

  EventLoop& loop_;
  base::UniqueFd fd_;
  const std::function<void()> come_;
  bool none_left_ = false;
  EventLoop::Handle watch_, again_;
};

}  // namespace lockstep::launch
