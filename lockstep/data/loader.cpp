#include "lockstep/data/loader.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/core_binding.h"
#include "lockstep/base/error.h"
#include "lockstep/data/decode_time.h"

namespace lockstep::data {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Without end is ten years: more would not fit into the clock.
Clock::duration timeout_of(const LoaderOptions& options) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(options.timeout_seconds, 3e8)));
}

struct Result {
  Batch batch;
  std::exception_ptr error;
};

// While it lives, threads that begin to use libtorch take over that they compute alone: at::set_num_threads() is for
// the thread that calls it and for all that compute for the first time from then on. Else each of our threads would
// start as many more as the training step has.
class NewThreadsComputeAlone {
 public:
  NewThreadsComputeAlone() {
    if (threads_ > 1) at::set_num_threads(1);
  }
  ~NewThreadsComputeAlone() {
    if (threads_ > 1) at::set_num_threads(threads_);
  }
  NewThreadsComputeAlone(const NewThreadsComputeAlone&) = delete;

 private:
  static inline std::mutex one_at_a_time_;
  const std::lock_guard<std::mutex> lock_{one_at_a_time_};
  const int threads_ = at::get_num_threads();
};

// Called by a new thread: it takes over the number. One at a time, for in a forked process libtorch replaces its pool
// of threads here, unguarded.
void take_over_number_of_threads() {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  at::get_num_threads();
}

constexpr std::chrono::seconds kStartTimeout(60);

// Whatever the source throws belongs to the consumer, so everything is caught here.
Result make(const BatchSource& source, std::int64_t number) {
  try {
    return {source(number), nullptr};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

}  // namespace

struct Loader::Shared {
  Shared(BatchSource batch_source, std::int64_t first, std::int64_t end, const LoaderOptions& loader_options)
      : source(std::move(batch_source)),
        last(end),
        options(loader_options),
        position(first),
        claimed(first),
        made(std::size_t(std::max(options.prefetch, options.workers))),
        workers(std::size_t(loader_options.workers)) {}

  struct Worker {
    WorkerStatistics statistics;
    std::optional<Clock::time_point> begun;  // of the batch in work
  };

  void work(Worker& self);
  bool wait_for_start();
  void make_one(Worker& self, std::unique_lock<std::mutex>& lock);
  bool has_room() const { return claimed < last && claimed < position + std::int64_t(made.size()); }
  std::optional<Result>& place_of(std::int64_t number) { return made[std::size_t(number) % made.size()]; }

  const BatchSource source;
  const std::int64_t last;
  const LoaderOptions options;

  std::mutex mutex;                  // of all that follows
  std::condition_variable room;      // workers wait: there is a batch to make, or stop
  std::condition_variable progress;  // the consumer waits: a worker has finished one
  std::int64_t position;
  std::int64_t claimed;                     // the next batch that no worker has taken
  std::int64_t generation = 0;              // batches claimed before a restore() are nobody's
  std::vector<std::optional<Result>> made;  // those from position on, in a ring: nothing is allocated per batch
  bool failed = false;
  bool stop = false;
  double waiting_seconds = 0;
  std::size_t started = 0;  // of the workers
  std::vector<Worker> workers;
};

void Loader::Shared::work(Worker& self) {
  std::unique_lock lock(mutex);
  ++started;
  progress.notify_all();
  while (true) {
    const Clock::time_point start = Clock::now();
    room.wait(lock, [&] { return stop || has_room(); });
    self.statistics.waiting_seconds += seconds_since(start);
    if (stop) return;
    make_one(self, lock);
  }
}

bool Loader::Shared::wait_for_start() {
  std::unique_lock lock(mutex);
  return progress.wait_for(lock, kStartTimeout, [&] { return started == workers.size(); });
}

void Loader::Shared::make_one(Worker& self, std::unique_lock<std::mutex>& lock) {
  const std::int64_t number = claimed++, claimed_in = generation;
  self.begun = Clock::now();
  const double decoded_before = DecodeTime::seconds();
  lock.unlock();
  Result result = make(source, number);
  lock.lock();
  WorkerStatistics& statistics = self.statistics;
  ++statistics.batches;
  statistics.source_seconds += seconds_since(*self.begun);
  statistics.decode_seconds += DecodeTime::seconds() - decoded_before;
  self.begun.reset();
  if (claimed_in == generation) place_of(number) = std::move(result);
  progress.notify_all();
}

Loader::Loader(BatchSource source, std::int64_t first, std::int64_t last, LoaderOptions options) {
  if (options.workers < 1 || options.prefetch < 1) {
    throw UsageError("loader: " + std::to_string(options.workers) + " workers and a prefetch of " +
                     std::to_string(options.prefetch) + ", at least 1 of each expected");
  }
  shared_ = std::make_shared<Shared>(std::move(source), first, last, options);
  const NewThreadsComputeAlone alone;
  try {
    for (Shared::Worker& worker : shared_->workers) {
      workers_.emplace_back([shared = shared_, &worker] {
        base::leave_own_cores();  // the computing thread's are not for us
        take_over_number_of_threads();
        shared->work(worker);
      });
    }
  } catch (...) {
    leave();
    throw;
  }
  if (!shared_->wait_for_start()) {
    leave();
    throw Error("loader: its threads have not started after " + std::to_string(kStartTimeout.count()) + " s");
  }
}

Loader::~Loader() { leave(); }

void Loader::leave() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->room.notify_all();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const std::optional<Clock::time_point>& begun = shared_->workers[i].begun;
    const Clock::time_point deadline = begun.value_or(Clock::time_point()) + timeout_of(shared_->options);
    if (!shared_->progress.wait_until(lock, deadline, [&] { return !begun; })) workers_[i].detach();
  }
  lock.unlock();
  for (std::thread& worker : workers_) {
    if (worker.joinable()) worker.join();
  }
}

std::optional<Batch> Loader::next() {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  const std::int64_t number = shared.position;
  if (shared.failed) throw Error("loader: stopped, batch " + std::to_string(number) + " failed before");
  if (number >= shared.last) return std::nullopt;
  const Clock::time_point start = Clock::now();
  const bool ready =
      shared.progress.wait_for(lock, timeout_of(shared.options), [&] { return shared.place_of(number).has_value(); });
  shared.waiting_seconds += seconds_since(start);
  if (!ready) {
    throw Error("loader: batch " + std::to_string(number) + " not ready after " +
                std::to_string(shared.options.timeout_seconds) + " s");
  }
  Result result = *std::exchange(shared.place_of(number), std::nullopt);
  if (result.error) {
    shared.failed = true;
    shared.stop = true;
  } else {
    ++shared.position;
  }
  lock.unlock();
  shared.room.notify_all();
  if (result.error) std::rethrow_exception(result.error);
  return std::move(result.batch);
}

std::optional<Batch> Loader::next_if_ready() {
  {
    const std::lock_guard lock(shared_->mutex);
    const std::int64_t number = shared_->position;
    if (shared_->failed || number >= shared_->last) return std::nullopt;
    const std::optional<Result>& made = shared_->place_of(number);
    if (!made || made->error) return std::nullopt;
  }
  return next();  // it stays ready: one thread takes batches
}

LoaderState Loader::state() const {
  const std::lock_guard lock(shared_->mutex);
  return {shared_->position};
}

void Loader::restore(const LoaderState& state) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->failed) throw Error("loader: stopped, batch " + std::to_string(shared_->position) + " failed before");
    if (state.position < 0 || state.position > shared_->last) {
      throw UsageError("loader: state of batch " + std::to_string(state.position) + ", 0 to " +
                       std::to_string(shared_->last) + " expected");
    }
    ++shared_->generation;
    std::ranges::fill(shared_->made, std::nullopt);
    shared_->position = shared_->claimed = state.position;
  }
  shared_->room.notify_all();
}

LoaderStatistics Loader::statistics() const {
  const std::lock_guard lock(shared_->mutex);
  LoaderStatistics statistics{.workers = {}, .waiting_seconds = shared_->waiting_seconds};
  for (const Shared::Worker& worker : shared_->workers) statistics.workers.push_back(worker.statistics);
  return statistics;
}

}  // namespace lockstep::data
