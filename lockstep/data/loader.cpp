#include "lockstep/data/loader.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {

Loader::Loader(BatchSource source, std::int64_t first, std::int64_t last, LoaderOptions options)
    : source_(std::move(source)), last_(last), options_(options), position_(first), claimed_(first) {
  if (options.workers < 1 || options.prefetch < 1) {
    throw UsageError("loader: " + std::to_string(options.workers) + " workers and a prefetch of " +
                     std::to_string(options.prefetch) + ", at least 1 of each expected");
  }
  for (int i = 0; i < options.workers; ++i) workers_.emplace_back([this] { work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  room_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

std::optional<Batch> Loader::next() {
  if (failed_) throw Error("loader: stopped, batch " + std::to_string(position_) + " failed before");
  if (position_ >= last_) return std::nullopt;
  std::unique_lock lock(mutex_);
  const auto timeout = std::chrono::duration<double>(options_.timeout_seconds);
  if (!ready_.wait_for(lock, timeout, [this] { return made_.contains(position_); })) {
    throw Error("loader: batch " + std::to_string(position_) + " not ready after " +
                std::to_string(options_.timeout_seconds) + " s");
  }
  Result result = std::move(made_.extract(position_).mapped());
  if (result.error) {
    failed_ = true;
    stop_ = true;
  } else {
    ++position_;
  }
  lock.unlock();
  room_.notify_all();
  if (result.error) std::rethrow_exception(result.error);
  return std::move(result.batch);
}

void Loader::work() {
  std::unique_lock lock(mutex_);
  const std::int64_t ahead = std::max(options_.prefetch, options_.workers);
  while (true) {
    room_.wait(lock, [&] { return stop_ || claimed_ >= last_ || claimed_ < position_ + ahead; });
    if (stop_ || claimed_ >= last_) return;
    const std::int64_t number = claimed_++;
    lock.unlock();
    Result result = make(number);
    lock.lock();
    made_.emplace(number, std::move(result));
    ready_.notify_one();
  }
}

// Whatever the source throws belongs to the consumer, so everything is caught here.
Loader::Result Loader::make(std::int64_t number) const {
  try {
    return {source_(number), nullptr};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

}  // namespace lockstep::data
