#include "lockstep/launch/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::launch {

EventLoop::EventLoop(base::Outlet& console) : console_(console), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw_errno("launcher: epoll_create1");
}

EventLoop::Handle EventLoop::watch(int fd, Handler handler, bool also_room) {
  const std::uint64_t id = next_id_++;
  epoll_event event{.events = also_room ? EPOLLIN | EPOLLOUT : EPOLLIN, .data = {.u64 = id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("launcher: epoll_ctl");
  watches_[id] = {.fd = fd, .handler = std::make_shared<const Handler>(std::move(handler))};
  return {*this, id};
}

EventLoop::Handle EventLoop::at(Clock::time_point time, Handler handler) {
  const std::uint64_t id = next_id_++;
  timers_[{time, id}] = std::move(handler);
  return {*this, id};
}

void EventLoop::end(std::uint64_t id) {
  if (const auto watched = watches_.find(id); watched != watches_.end()) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watched->second.fd, nullptr);
    watches_.erase(watched);
  } else {
    std::erase_if(timers_, [id](const auto& timer) { return timer.first.second == id; });
  }
}

void EventLoop::turn(Clock::time_point deadline) {
  console_.wait(epoll_.get(), timers_.empty() ? deadline : std::min(deadline, timers_.begin()->first.first));
  hand_out_events();
  hand_out_timers();
}

bool EventLoop::run_until(const std::function<bool()>& done, Clock::time_point deadline) {
  while (!done()) {
    const bool last = Clock::now() >= deadline;
    turn(deadline);
    if (last) return done();
  }
  return true;
}

void EventLoop::hand_out_events() {
  std::vector<epoll_event> events(watches_.size() + 1);  // all that can have come; none would be an error
  const int count = epoll_wait(epoll_.get(), events.data(), int(events.size()), 0);
  if (count < 0 && errno != EINTR) throw_errno("launcher: epoll_wait");
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[std::size_t(i)].data.u64;  // a copy: the kernel's struct is packed
    const auto watched = watches_.find(id);
    if (watched == watches_.end()) continue;
    const std::shared_ptr<const Handler> handler = watched->second.handler;
    (*handler)();
  }
}

void EventLoop::hand_out_timers() {
  const Clock::time_point now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const auto due = timers_.extract(timers_.begin());
    due.mapped()();
  }
}

}  // namespace lockstep::launch
