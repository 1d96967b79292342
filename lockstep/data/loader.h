#pragma once

// Prepares batches in threads while the training step runs.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/data/batch.h"

namespace lockstep::data {

struct LoaderOptions {
  int workers = 1;               ///< threads; more when one cannot keep up with the training step
  int prefetch = 2;              ///< batches ready or in work ahead of the consumer; at least workers
  double timeout_seconds = 300;  ///< what a batch may take: how long next() and the destructor wait for one
};

/// Makes batch number k. Called from the loader's threads, from several at once when there
/// are several workers; must be a pure function of k. It may use any operator: these threads compute alone, whatever
/// at::set_num_threads() says of others. It should own what it uses (captured by value or by shared_ptr): see ~Loader.
using BatchSource = std::function<Batch(std::int64_t number)>;

/// What one worker has done until now; a batch or a wait counts when it is over.
struct WorkerStatistics {
  std::int64_t batches = 0;
  double source_seconds = 0;   ///< spent in the source
  double decode_seconds = 0;   ///< of these, in reading and decoding files (decode_time.h)
  double waiting_seconds = 0;  ///< without work: enough batches are ready, or all are made
};

/// Where the time goes. Workers that wait mean that loading keeps up; a consumer that waits, that it does not.
struct LoaderStatistics {
  std::vector<WorkerStatistics> workers;
  double waiting_seconds = 0;  ///< of the consumer, in next()
};

/// How far the consumer has come; batches made ahead do not count.
struct LoaderState {
  std::int64_t position = 0;  ///< the number of the batch that next() gives

  bool operator==(const LoaderState&) const = default;
};

/// Batches first … last−1 of a source, in order. Start it at `first` = k to go on after k
/// batches. One consumer thread.
class Loader {
 public:
  /// UsageError when workers or prefetch are below 1. Returns when the threads have started.
  Loader(BatchSource source, std::int64_t first, std::int64_t last, LoaderOptions options = {});
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Waits for batches in work, not for the rest. A worker that has been at one batch for timeout_seconds is
  /// blocked, on a file system that hangs for instance: it is left behind with its copy of the source, and ends
  /// when it can.
  ~Loader();

  /// The next batch; nothing after the last. What the source threw for this batch is thrown
  /// here, once; from then on the loader is stopped and next() throws Error. Error also when
  /// the batch does not come within the timeout.
  std::optional<Batch> next();

  /// The same where the batch lies ready, and nothing where it does not, or next() would throw. Does not wait.
  std::optional<Batch> next_if_ready();

  /// The number of the batch that next() gives.
  std::int64_t position() const { return state().position; }

  LoaderState state() const;

  /// Goes on from there, forth or back; what was made ahead is dropped. The same as a new loader with
  /// `first` = state.position, without new threads. UsageError when that is not in 0 … last, Error when the
  /// loader is stopped.
  void restore(const LoaderState& state);

  /// Any thread may ask.
  LoaderStatistics statistics() const;

 private:
  struct Shared;

  void leave();

  std::shared_ptr<Shared> shared_;  // with the workers, one of which may outlive the loader
  std::vector<std::thread> workers_;
};

}  // namespace lockstep::data
