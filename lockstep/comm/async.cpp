#include "lockstep/comm/async.h"

#include <csignal>
#include <exception>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/checks.h"
#include "lockstep/comm/device_streams.h"

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
    unfinished = unfinished_ > 0;
  }
  changed_.notify_one();
  if (unfinished && std::uncaught_exceptions() > 0)
    group_->abort("rank " + std::to_string(name_in_world(*group_, group_->rank())) +
                  " fails with collectives under way");
  thread_.join();
}

bool AsyncCollectives::is_idle() const {
  const std::lock_guard lock(mutex_);
  return unfinished_ == 0;
}

Work AsyncCollectives::run(std::function<void(Group&)> collective) {
  return add({.collective = std::move(collective), .transfer = nullptr, .state = std::make_shared<Work::State>()});
}

Work AsyncCollectives::add(Item item) {
  Work work(item.state);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
    ++unfinished_;
  }
  changed_.notify_one();
  return work;
}

void AsyncCollectives::run_queue() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item;
    if (queue_.front().transfer == nullptr) {
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    lock.unlock();
    std::exception_ptr error;
    try {
      if (item.state)
        item.collective(*group_);
      else
        carry(*group_, [this] { return next_transfer(); });
    } catch (...) {
      error = std::current_exception();  // messages have been told
    }
    item.collective = nullptr;  // whoever waits has the tensors to himself
    if (item.state) end(*item.state, error);
    lock.lock();
  }
}

std::shared_ptr<Transfer> AsyncCollectives::next_transfer() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return nullptr;
  std::shared_ptr<Transfer> transfer = std::move(queue_.front().transfer);
  if (transfer != nullptr) queue_.pop_front();
  return transfer;
}

void AsyncCollectives::end(Work::State& state, const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);  // whoever has waited for all finds nothing left
    --unfinished_;
  }
  {
    const std::lock_guard lock(state.mutex);
    state.done = true;
    state.error = error;
  }
  state.ended.notify_all();
}

AsyncCollectives::Item AsyncCollectives::transfer_of(const P2POp& op) {
  auto state = std::make_shared<Work::State>();
  auto transfer = std::make_shared<Transfer>(op, rank(), size(),
                                             [this, state](const std::exception_ptr& error) { end(*state, error); });
  return {.collective = {}, .transfer = std::move(transfer), .state = std::move(state)};
}

Work AsyncCollectives::isend(const at::Tensor& tensor, int peer, int tag) {
  return add(transfer_of({.way = Way::send, .tensor = tensor, .peer = peer, .tag = tag}));
}

Work AsyncCollectives::irecv(const at::Tensor& tensor, int peer, int tag) {
  return add(transfer_of({.way = Way::recv, .tensor = tensor, .peer = peer, .tag = tag}));
}

std::vector<Work> AsyncCollectives::batch_isend_irecv(const std::vector<P2POp>& ops) {
  std::vector<Item> items;  // all, or none when one cannot be
  for (const P2POp& op : ops) items.push_back(transfer_of(op));
  std::vector<Work> works;
  for (Item& item : items) works.push_back(add(std::move(item)));
  return works;
}

// As run(), for a tensor whose device, if any, gets what it has to do from here.
template <class Body>
Work AsyncCollectives::run_for(const at::Tensor& tensor, Body&& body) {
  return run([stream = CallersStream(tensor), body = std::forward<Body>(body)](Group& group) {
    const CallersStream::Here here(stream);
    body(group);
  });
}

Work AsyncCollectives::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  return run_for(tensor, [tensor, op](Group& group) { group.all_reduce(tensor, op); });
}

Work AsyncCollectives::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  return run_for(output, [output, input, op](Group& group) { group.reduce_scatter(output, input, op); });
}

Work AsyncCollectives::broadcast(const at::Tensor& tensor, int root) {
  return run_for(tensor, [tensor, root](Group& group) { group.broadcast(tensor, root); });
}

Work AsyncCollectives::all_gather(std::vector<at::Tensor> outputs, const at::Tensor& tensor) {
  return run_for(tensor, [outputs = std::move(outputs), tensor](Group& group) {
    if (outputs.size() != std::size_t(group.size()))
      throw UsageError("all_gather: " + std::to_string(outputs.size()) + " outputs for " +
                       std::to_string(group.size()) + " ranks");
    const std::vector<at::Tensor> gathered = group.all_gather(tensor);
    for (std::size_t rank = 0; rank < outputs.size(); ++rank)
      outputs[rank].detach().copy_(gathered[rank].view(outputs[rank].sizes()));
  });
}

Work AsyncCollectives::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  return run_for(output, [output, input](Group& group) { group.all_to_all(output, input); });
}

Work AsyncCollectives::barrier() {
  return run([](Group& group) { group.barrier(); });
}

}  // namespace lockstep::comm
