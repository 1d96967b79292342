#include "python/turns.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace lockstep::python {

Turns::Turns(std::shared_ptr<comm::Group> group, std::string suffix)
    : group_(std::move(group)), suffix_(std::move(suffix)), rank_(group_->rank()), process_(getpid()) {}

bool Turns::is_this_process() const { return process_ == getpid(); }

bool Turns::is_unfinished() {
  const std::lock_guard lock(mutex_);
  return busy_ || !queue_.empty();
}

void Turns::leave() {
  if (!is_this_process()) {
    [[maybe_unused]] const auto* lost = thread_.release();  // it runs in the parent
    return;
  }
  if (is_unfinished()) abort("rank " + std::to_string(rank_) + " ends with collectives under way");
  close();
}

void Turns::close() {
  if (!is_this_process()) return;
  std::unique_lock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
  if (thread_ && worker_ != std::this_thread::get_id()) {
    const std::unique_ptr<std::thread> thread = std::move(thread_);
    lock.unlock();
    thread->join();
    lock.lock();
  }
  changed_.wait(lock, [&] { return !busy_; });
  group_.reset();
}

void Turns::abort(const std::string& cause) {
  if (!is_this_process()) return;
  const std::lock_guard lock(mutex_);
  if (group_) group_->abort(cause + suffix_);
}

void Turns::add(const c10::intrusive_ptr<Work>& work, bool caller_waits) {
  TORCH_CHECK_VALUE(is_this_process(), "this process was forked by a rank, and is none of its process group");
  std::unique_lock lock(mutex_);
  if (worker_ == std::this_thread::get_id()) {
    lock.unlock();
    return work->run(*group_, suffix_);
  }
  TORCH_CHECK_VALUE(!closed_, "this process group was destroyed");
  if (caller_waits && queue_.empty() && !busy_) {
    busy_ = true;
    lock.unlock();
    work->run(*group_, suffix_);
    lock.lock();
    busy_ = false;
    const bool others = !queue_.empty() || closed_;
    lock.unlock();
    if (others) changed_.notify_all();
    return;
  }
  queue_.push_back(work);
  if (!thread_) {
    // Signals are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::make_unique<std::thread>([this] { run_queue(); });
    worker_ = thread_->get_id();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  lock.unlock();
  changed_.notify_all();
}

void Turns::run_queue() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !busy_ && (closed_ || !queue_.empty()); });
    if (queue_.empty()) return;
    const c10::intrusive_ptr<Work> work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    work->run(*group_, suffix_);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace lockstep::python
