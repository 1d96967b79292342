#include "lockstep/parallel/replica_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

#include "lockstep/comm/device_streams.h"

namespace lockstep::parallel {
std::vector<c10::Stream> current_streams(const std::vector<at::Device>& devices) {
  std::vector<c10::Stream> streams;
  for (const at::Device device : devices) {
    const auto is_there = [&](const c10::Stream& stream) { return stream.device() == device; };
    if (!device.is_cpu() && std::none_of(streams.begin(), streams.end(), is_there))
      streams.push_back(comm::current_stream(device));
  }
  return streams;
}

ReplicaThreads::ReplicaThreads(int count, std::vector<at::Device> devices)
    : devices_(std::move(devices)), waits_(std::size_t(count)), errors_(std::size_t(count)) {
  for (int i = 0; i < count; ++i) threads_.emplace_back([this, i] { work(i); });
}

ReplicaThreads::~ReplicaThreads() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReplicaThreads::run(int count, const std::function<void(int)>& task, bool in_order) {
  const at::ThreadLocalState here;
  // What at::ThreadLocalState leaves out. Nesting is not counted: with the outermost scope autocast drops the casts of
  // all threads.
  const bool keeps_casts = at::autocast::is_autocast_cache_enabled();
  const std::vector<c10::Stream> streams = current_streams(devices_);
  const int threads = at::get_num_threads();
  const std::function<void(int)> as_here = [&](int i) {
    const at::ThreadLocalStateGuard guard(here);
    const c10::MultiStreamGuard on_streams(streams);
    c10::OptionalDeviceGuard on_device;
    if (std::size_t(i) < devices_.size() && !devices_[std::size_t(i)].is_cpu())
      on_device.reset_device(devices_[std::size_t(i)]);
    at::autocast::set_autocast_cache_enabled(keeps_casts);
    // OpenMP has a number for each thread, and MKL goes by it: asking is what makes a new thread take over libtorch's.
    if (at::get_num_threads() != threads) at::set_num_threads(threads);
    task(i);
  };
  const int at_once = in_order ? 1 : count;
  for (int first = 0; first < count; first += at_once) start(first, first + at_once, as_here);
}

void ReplicaThreads::start(int first, int last, const std::function<void(int)>& task) {
  std::unique_lock lock(mutex_);
  task_ = &task;
  running_ = last - first;
  for (int i = first; i < last; ++i) {
    waits_[std::size_t(i)] = true;
    errors_[std::size_t(i)] = nullptr;
  }
  begun_.notify_all();
  done_.wait(lock, [&] { return running_ == 0; });
  task_ = nullptr;
  for (int i = first; i < last; ++i)
    if (std::exception_ptr error = std::exchange(errors_[std::size_t(i)], nullptr)) std::rethrow_exception(error);
}

void ReplicaThreads::work(int index) {
  const auto me = std::size_t(index);
  for (std::unique_lock lock(mutex_);;) {
    begun_.wait(lock, [&] { return end_ || waits_[me]; });
    if (end_) return;
    waits_[me] = false;
    const std::function<void(int)>& task = *task_;
    lock.unlock();
    std::exception_ptr error;
    try {
      task(index);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    errors_[me] = std::move(error);
    if (--running_ == 0) done_.notify_all();
  }
}

}  // namespace lockstep::parallel
