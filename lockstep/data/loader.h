#pragma once

// Prepares batches in threads while the training step runs.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/data/batch.h"

namespace lockstep::data {

struct LoaderOptions {
  int workers = 1;               ///< threads; more when one cannot keep up with the training step
  int prefetch = 2;              ///< batches ready or in work ahead of the consumer; at least workers
  double timeout_seconds = 300;  ///< how long next() waits for a batch before it throws
};

/// Makes batch number k. Called from the loader's threads, from several at once when there
/// are several workers; must be a pure function of k and must not use OpenMP (see Batches).
using BatchSource = std::function<Batch(std::int64_t number)>;

/// Batches first … last−1 of a source, in order. Start it at `first` = k to go on after k
/// batches. One consumer thread; the destructor waits for a batch in work, not for the rest.
class Loader {
 public:
  /// UsageError when workers or prefetch are below 1.
  Loader(BatchSource source, std::int64_t first, std::int64_t last, LoaderOptions options = {});
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  /// The next batch; nothing after the last. What the source threw for this batch is thrown
  /// here, once; from then on the loader is stopped and next() throws Error. Error also when
  /// the batch does not come within the timeout.
  std::optional<Batch> next();

  /// The number of the batch that next() gives.
  std::int64_t position() const { return position_; }

 private:
  struct Result {
    Batch batch;
    std::exception_ptr error;
  };

  void work();
  Result make(std::int64_t number) const;

  const BatchSource source_;
  const std::int64_t last_;
  const LoaderOptions options_;
  std::int64_t position_;  // the consumer's; written under the mutex
  bool failed_ = false;    // the consumer's own

  std::mutex mutex_;
  std::condition_variable room_;   // workers wait: there is a batch to make, or stop
  std::condition_variable ready_;  // the consumer waits: its batch is made
  std::int64_t claimed_;           // the next batch that no worker has taken
  std::map<std::int64_t, Result> made_;
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace lockstep::data
