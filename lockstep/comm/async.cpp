#include "lockstep/comm/async.h"

#include <csignal>
#include <exception>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::comm {

bool Work::is_completed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

void Work::wait() const {
  std::unique_lock lock(state_->mutex);
  state_->ended.wait(lock, [&] { return state_->done; });
  if (state_->error) std::rethrow_exception(state_->error);
}

void Work::wait(std::chrono::milliseconds timeout) const {
  {
    std::unique_lock lock(state_->mutex);
    if (!state_->ended.wait_for(lock, timeout, [&] { return state_->done; }))
      throw Error("the collective has not ended within " + std::to_string(timeout.count()) + " ms");
  }
  wait();
}

AsyncCollectives::AsyncCollectives(std::shared_ptr<Group> group) : group_(std::move(group)) {
  if (group_ == nullptr) throw UsageError("AsyncCollectives: this rank is not in the group");
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run_queue(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

AsyncCollectives::~AsyncCollectives() {
  bool unfinished = false;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    unfinished = !queue_.empty();
  }
  changed_.notify_one();
  if (unfinished && std::uncaught_exceptions() > 0)
    group_->abort("rank " + std::to_string(group_->rank()) + " fails with collectives under way");
  thread_.join();
}

bool AsyncCollectives::is_idle() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty();
}

Work AsyncCollectives::run(std::function<void(Group&)> collective) {
  Item item{std::move(collective), std::make_shared<Work::State>()};
  Work work(item.state);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
  }
  changed_.notify_one();
  return work;
}

void AsyncCollectives::run_queue() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    lock.unlock();
    std::exception_ptr error;
    try {
      item.collective(*group_);
    } catch (...) {
      error = std::current_exception();
    }
    item.collective = nullptr;  // whoever waits has the tensors to himself
    lock.lock();
    queue_.pop_front();  // whoever has waited for all finds nothing left
    lock.unlock();
    {
      const std::lock_guard state_lock(item.state->mutex);
      item.state->done = true;
      item.state->error = error;
    }
    item.state->ended.notify_all();
    lock.lock();
  }
}

Work AsyncCollectives::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  return run([tensor, op](Group& group) { group.all_reduce(tensor, op); });
}

Work AsyncCollectives::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  return run([output, input, op](Group& group) { group.reduce_scatter(output, input, op); });
}

Work AsyncCollectives::broadcast(const at::Tensor& tensor, int root) {
  return run([tensor, root](Group& group) { group.broadcast(tensor, root); });
}

Work AsyncCollectives::all_gather(std::vector<at::Tensor> outputs, const at::Tensor& tensor) {
  return run([outputs = std::move(outputs), tensor](Group& group) {
    if (outputs.size() != std::size_t(group.size()))
      throw UsageError("all_gather: " + std::to_string(outputs.size()) + " outputs for " +
                       std::to_string(group.size()) + " ranks");
    const std::vector<at::Tensor> gathered = group.all_gather(tensor);
    for (std::size_t rank = 0; rank < outputs.size(); ++rank)
      outputs[rank].detach().copy_(gathered[rank].view(outputs[rank].sizes()));
  });
}

Work AsyncCollectives::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  return run([output, input](Group& group) { group.all_to_all(output, input); });
}

Work AsyncCollectives::barrier() {
  return run([](Group& group) { group.barrier(); });
}

}  // namespace lockstep::comm
