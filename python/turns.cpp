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
  queue({work, nullptr}, std::move(lock));
}

void Turns::add(const c10::intrusive_ptr<Work>& work, comm::P2POp op) {
  TORCH_CHECK_VALUE(is_this_process(), "this process was forked by a rank, and is none of its process group");
  std::unique_lock lock(mutex_);
  TORCH_CHECK_VALUE(!closed_, "this process group was destroyed");
  const auto ended = [this, work](const std::exception_ptr& error) {
    if (work->end(error ? for_python(error, suffix_) : nullptr)) with_callbacks_.push_back(work);
  };
  auto transfer = std::make_shared<comm::Transfer>(std::move(op), rank_, group_->size(), ended);
  if (worker_ != std::this_thread::get_id()) return queue({work, std::move(transfer)}, std::move(lock));
  lock.unlock();
  carry([&] { return std::exchange(transfer, nullptr); });
}

void Turns::queue(Turn turn, std::unique_lock<std::mutex> lock) {
  queue_.push_back(std::move(turn));
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
    busy_ = true;
    if (queue_.front().transfer != nullptr) {
      lock.unlock();
      carry([this] { return next_transfer(); });
    } else {
      const c10::intrusive_ptr<Work> work = std::move(queue_.front().work);
      queue_.pop_front();
      lock.unlock();
      work->run(*group_, suffix_);
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

// Callbacks may call collectives, for which the messages have to be done.
void Turns::carry(const std::function<std::shared_ptr<comm::Transfer>()>& next) {
  try {
    comm::carry(*group_, next);
  } catch (const std::exception&) {  // their works have been told
  }
  for (const c10::intrusive_ptr<Work>& work : std::exchange(with_callbacks_, {})) work->complete_future();
}

std::shared_ptr<comm::Transfer> Turns::next_transfer() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return nullptr;
  std::shared_ptr<comm::Transfer> transfer = std::move(queue_.front().transfer);
  if (transfer != nullptr) queue_.pop_front();
  return transfer;
}

}  // namespace lockstep::python
