#pragma once

// DataLoader: the batches of a training loop, as Python's torch.utils.data.DataLoader with a DistributedSampler.
//
//   data::DataLoader loader(batches, ddp.part(), {.batch_size = 64, .shuffle = true});
//   ddp.state().keep("loader", loader.kept());                  // before the optimizer is made
//   lockstep::optim::SGD optimizer(ddp, {.lr = 0.1});
//   for (auto epoch = loader.epoch(); epoch < 10; ++epoch) {    // 0, or where the committed state says
//     loader.set_epoch(epoch);
//     for (auto& batch : loader) { ... optimizer.step(); }
//   }

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "lockstep/base/part.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/device_loader.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/map_batches.h"
#include "lockstep/data/samplers/sampler.h"
#include "lockstep/data/transforms/mixup.h"

namespace lockstep::data {

using base::Part;

struct DataLoaderOptions {
  /// Samples per step, one of the two. `batch_size` is per process, as in PyTorch: all processes together take
  /// batch_size * ranks. With `global_batch_size` and a fixed number of shards (DataParallelOptions::shards), order,
  /// augmentation and bits do not depend on the number of processes. Either way the shards must divide the samples of a
  /// step.
  std::optional<std::int64_t> batch_size = {};
  std::optional<std::int64_t> global_batch_size = {};

  bool shuffle = false;                            ///< a new order each epoch, that of DistributedSampler
  std::shared_ptr<const Sampler> sampler = {};     ///< another order; none: that of the set, or shuffled
  std::uint64_t seed = 0;                          ///< of order and mixing, equal on all ranks
  bool drop_last = false;                          ///< leave out what fills no whole step. Else all shards get equally
                                                   ///< many: the order begins again, and the last batch may be smaller
  std::shared_ptr<const BatchMix> mix = {};        ///< MixUp, CutMix: each shard mixed within itself (mixed_batch.h)
  std::int64_t classes = 0;                        ///< of the mixed labels
  int num_workers = 1;                             ///< threads, at least 1
  int prefetch_factor = 2;                         ///< batches made ahead for each of them, at least 1
  double timeout = 300;                            ///< seconds that a batch may take, more than 0
  std::optional<std::int64_t> total_batches = {};  ///< of all epochs: the threads make none behind them
  at::Device device = at::Device(at::kCPU);        ///< where batches are handed out, ddp.device() for instance: made in
                                                   ///< page-locked memory and copied one ahead (device_loader.h), for
                                                   ///< the current stream of the thread that takes them
};

/// Where a loop stands; batches made ahead do not count.
struct DataLoaderState {
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  ///< how many the loop has taken in this epoch
  std::int64_t seen = 0;   ///< samples of this epoch that were taken before in batches of another kind: then what is
                           ///< left of it are its last batches, and those in front of them count as taken

  bool operator==(const DataLoaderState&) const = default;
};

/// The batches of one rank, made ahead by threads, which begin with the first batch and live across epochs. The samples
/// of its shards stand one behind the other, each shard's in DistributedSampler's order for as many replicas as shards,
/// so that it does not show who computes it.
///
/// One thread uses it. It stays where it is: state may refer to it.
class DataLoader {
 public:
  /// `batches` is the whole set, the same on all ranks; a slice of it that is one rank's alone goes with Part{}.
  /// UsageError when the options contradict each other or the part, or when there are too few samples for a batch.
  DataLoader(std::shared_ptr<const Batches> batches, const Part& part, const DataLoaderOptions& options);

  /// A set of your own: see MapStyle.
  template <MapStyle Dataset>
  DataLoader(Dataset dataset, const Part& part, const DataLoaderOptions& options)
      : DataLoader(std::make_shared<MapBatches<Dataset>>(std::move(dataset)), part, options) {}

  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Batches in an epoch, the same on all ranks.
  std::int64_t size() const;

  /// The one that the next pass is of, when nothing else is set: behind a pass the one after it.
  std::int64_t epoch() const { return kept_.place.epoch + (kept_.passed != 0 ? 1 : 0); }

  /// Goes to the beginning of `epoch`, counted from 0, unless it stands in it. UsageError when it is negative, and as
  /// of next().
  void set_epoch(std::int64_t epoch);

  /// The next batch of the epoch; nothing, once, at its end: after that comes the next epoch. Nothing after
  /// total_batches. Throws as Loader::next(), and UsageError when kept() holds a place that there is not. A batch that
  /// threw is still the next one; restore() goes past it.
  std::optional<Batch> next();

  DataLoaderState state() const { return adopted().place; }

  /// Goes on from there, forth or back. UsageError when it has no such place.
  void restore(const DataLoaderState& state);

  /// state() in memory, for ddp.state().keep(): a step commits which batches had been taken when it was made, those of
  /// steps that were left out included, and after a restart the loop goes on behind them. A place kept at the end of an
  /// epoch gives a pass without batches, so that what stands behind the pass happens; one that is kept behind the pass,
  /// as by recommit(), is that of the next epoch.
  /// Of a loader with other samples in a step, or another number of shards, the place becomes one of this loader, which
  /// goes on with the samples of the epoch that were not taken yet; rank 0 says so in one line on stderr.
  /// The loader outlives the optimizer's steps.
  std::span<std::byte> kept() { return std::as_writable_bytes(std::span(&kept_, 1)); }

  /// Where kept() has the numbers of state(), each an std::int64_t: "epoch", "batch" and "seen", and their offsets. By
  /// these a checkpoint tells the place in words (checkpoint::SaveOptions::place).
  static std::map<std::string, std::size_t> place_in_kept();

  /// Says, or says anew, what options.total_batches says: for who knows it only where the loop stands. >= 0.
  void set_total_batches(std::int64_t total);

  /// Counted from the first batch on, anew after one that threw.
  LoaderStatistics statistics() const;

  /// A pass over the rest of the epoch, all of it at first. One that was left by `break` goes on there.
  class Iterator {
   public:
    explicit Iterator(DataLoader& loader) : loader_(&loader) {}
    Batch& operator*() const { return *loader_->current_; }
    Batch* operator->() const { return &*loader_->current_; }
    Iterator& operator++() {
      loader_->advance();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !loader_->current_; }

   private:
    DataLoader* loader_;
  };
  Iterator begin() {
    advance();
    return Iterator(*this);
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  struct Recipe;
  /// What a batch of all ranks is.
  struct BatchKind {
    std::int64_t samples = 0;
    std::int64_t shards = 0;
    bool operator==(const BatchKind&) const = default;
  };
  struct Kept {
    DataLoaderState place;
    std::int64_t passed = 0;  ///< 1: the end of place.epoch was told
    BatchKind counted;        ///< in place.batch
  };

  void advance();
  void check(const DataLoaderState& state) const;
  Kept adopted() const;
  void adopt();
  DeviceLoader& loader_at(const DataLoaderState& place);

  std::shared_ptr<const Recipe> recipe_;  ///< with the threads
  LoaderOptions loader_options_;
  std::int64_t last_;  ///< behind the last batch of all epochs
  BatchKind kind_;
  int rank_;
  Kept kept_;
  std::optional<Batch> current_;  ///< of an Iterator
  std::unique_ptr<DeviceLoader> loader_;
  DataLoaderState begun_;  ///< where loader_ began
};

}  // namespace lockstep::data
