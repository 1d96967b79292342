#pragma once

// Work that waits for somebody else, as long as he likes, and for which nobody here may wait: the system's resolver.

#include <sys/eventfd.h>

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {

/// Runs `work` on a thread of its own. Where this object ends before the work, that goes on, and nobody hears of it;
/// the end of the process does not wait for it either. So that whoever forks does it in a process without threads,
/// take() what it has found before. Without a thread to be had the work is done in the constructor.
template <class T>
class Errand {
 public:
  /// `work` must own what it uses. Throws Error.
  explicit Errand(std::function<T()> work) : shared_(std::make_shared<Shared>()) {
    if (!shared_->ended) throw_errno("launcher: eventfd");
    result_ = shared_->promise.get_future();
    const auto run = [shared = shared_, work = std::move(work)] {
      try {
        shared->promise.set_value(work());
      } catch (...) {
        shared->promise.set_exception(std::current_exception());
      }
      eventfd_write(shared->ended.get(), 1);
    };
    try {
      thread_ = std::thread(run);
    } catch (const std::system_error&) {
      run();
    }
  }
  ~Errand() {
    if (thread_.joinable()) thread_.detach();
  }
  Errand(const Errand&) = delete;
  Errand& operator=(const Errand&) = delete;

  /// Can be read when the work has ended.
  int fd() const { return shared_->ended.get(); }
  bool ends_within(std::chrono::milliseconds time) const { return result_.wait_for(time) == std::future_status::ready; }
  /// Waits for the end; returns what the work returns and throws what it throws. Once; no thread is left then.
  T take() {
    if (thread_.joinable()) thread_.join();
    return result_.get();
  }

 private:
  struct Shared {
    std::promise<T> promise;
    const base::UniqueFd ended{eventfd(0, EFD_CLOEXEC)};
  };

  const std::shared_ptr<Shared> shared_;
  std::future<T> result_;
  std::thread thread_;
};

}  // namespace lockstep::launch
