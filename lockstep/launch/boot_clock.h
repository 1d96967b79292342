#pragma once

// The time since this machine was started, with that in which it was asleep; EventLoop::Clock stands still then.

#include <chrono>
#include <ctime>

namespace lockstep::launch {

/// For limits that other machines count on, which go on meanwhile. A virtual machine that was paused does not know it.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
  }
};

}  // namespace lockstep::launch
