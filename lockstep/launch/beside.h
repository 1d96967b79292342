#pragma once

// Work that takes long and knows nothing of the event loop: memory that is copied.

#include <sys/eventfd.h>

#include <chrono>
#include <future>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/event_loop.h"

namespace lockstep::launch {

/// Runs `work` on a thread of its own while the loop turns; returns what it returns and throws what it throws. The
/// thread has ended by then, also where a handler of the loop throws: whoever forks does it in a process without
/// threads. Without a thread to be had the loop waits. Throws Error.
template <class Work>
auto beside(EventLoop& loop, Work work) {
  const base::UniqueFd ended(eventfd(0, EFD_CLOEXEC));
  if (!ended) throw_errno("launcher: eventfd");
  struct Bell {
    ~Bell() { eventfd_write(fd, 1); }
    int fd;
  };
  std::future<decltype(work())> result;
  const EventLoop::Handle watch = loop.watch(ended.get(), [] {});
  try {
    result = std::async(std::launch::async, [&] {
      const Bell bell{ended.get()};
      return work();
    });
  } catch (const std::system_error&) {
    return work();
  }
  loop.run_until([&] { return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  return result.get();
}

}  // namespace lockstep::launch
