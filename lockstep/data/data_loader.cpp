#include "lockstep/data/data_loader.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/data/mixed_batch.h"
#include "lockstep/data/samplers/random.h"
#include "lockstep/data/samplers/shard_order.h"

namespace lockstep::data {
namespace {

std::string text_of(std::int64_t number) { return std::to_string(number); }

std::shared_ptr<const Sampler> epoch_order(std::int64_t samples, const DataLoaderOptions& options) {
  if (options.sampler && options.shuffle)
    throw UsageError("data loader: .shuffle and .sampler both give an order, one of the two expected");
  if (options.sampler) return options.sampler;
  if (options.shuffle) return std::make_shared<RandomSampler>(samples, RandomSamplerOptions{.seed = options.seed});
  return std::make_shared<SequentialSampler>(samples);
}

constexpr std::int64_t kMostSamples = std::int64_t(1) << 40;  // of a step: more is a mistake, and products still fit
constexpr int kMostThreads = 4096;                            // and batches ahead of each

std::int64_t samples_per_step(const Part& part, const DataLoaderOptions& options) {
  if (options.batch_size.has_value() == options.global_batch_size.has_value())
    throw UsageError("data loader: .batch_size, per process, or .global_batch_size, of all: one of the two expected");
  const std::int64_t given = options.global_batch_size ? *options.global_batch_size : *options.batch_size;
  if (given < 1 || given > kMostSamples)
    throw UsageError("data loader: a batch of " + text_of(given) + " samples, 1 to 2^40 expected");
  return options.global_batch_size ? given : given * part.ranks;
}

// Samples of a shard in a step, of options that fit the part.
std::int64_t checked_shard_batch(const Part& part, const DataLoaderOptions& options) {
  if (part.rank < 0 || part.rank >= part.ranks || part.ranks > part.shards)
    throw UsageError("data loader: the part of rank " + text_of(part.rank) + " of " + text_of(part.ranks) + " with " +
                     text_of(part.shards) + " shards, 0 <= rank < ranks <= shards expected");
  if (std::min(options.num_workers, options.prefetch_factor) < 1 ||
      std::max(options.num_workers, options.prefetch_factor) > kMostThreads)
    throw UsageError("data loader: .num_workers " + text_of(options.num_workers) + " and .prefetch_factor " +
                     text_of(options.prefetch_factor) + ", 1 to " + text_of(kMostThreads) + " of each expected");
  if (!(options.timeout > 0))
    throw UsageError("data loader: .timeout " + std::to_string(options.timeout) + ", more than 0 seconds expected");
  if (options.total_batches.value_or(0) < 0)
    throw UsageError("data loader: .total_batches " + text_of(*options.total_batches) + ", 0 or more expected");
  const std::int64_t whole = samples_per_step(part, options);
  if (whole % part.shards != 0)
    throw UsageError("data loader: " + text_of(whole) + " samples per step of all processes, a multiple of the " +
                     text_of(part.shards) + " shards expected");
  const std::int64_t shard_batch = whole / part.shards;
  if (options.mix && (shard_batch < 2 || options.classes < 1))
    throw UsageError("data loader: .mix with " + text_of(shard_batch) + " samples of a shard per step and .classes " +
                     text_of(options.classes) + ", at least 2 samples and the number of classes expected");
  return shard_batch;
}

std::int64_t seen_in(std::int64_t epoch, const DataLoaderState& place) { return epoch == place.epoch ? place.seen : 0; }

std::shared_ptr<const Batches> checked(std::shared_ptr<const Batches> batches) {
  if (!batches) throw UsageError("data loader: no set: the pointer to it is null");
  return batches;
}

}  // namespace

// What makes batches: a pure function of their number, counted over all epochs.
struct DataLoader::Recipe {
  Recipe(std::shared_ptr<const Batches> the_batches, const Part& part, const DataLoaderOptions& the_options)
      : batches(checked(std::move(the_batches))),
        options(the_options),
        order(epoch_order(batches->size(), options), part, checked_shard_batch(part, options), options.drop_last),
        span(part.span()) {}

  // `begun`: where the threads began, perhaps in an epoch of which some was seen.
  Batch make(std::int64_t number, const DataLoaderState& begun) const {
    const std::int64_t epoch = number / order.batches(), in_epoch = number % order.batches();
    const std::int64_t seen = seen_in(epoch, begun);
    Batch batch = batches->make(std::uint64_t(epoch), order.samples(epoch, in_epoch, seen));
    if (options.mix) {
      const BatchKey key{.seed = options.seed,
                         .epoch = std::uint64_t(epoch),
                         .batch = std::uint64_t(in_epoch),
                         .shard = std::uint32_t(span.first)};
      mix_batch(batch, *options.mix, options.classes, key, span.count());
    }
    return batch;
  }

  const std::shared_ptr<const Batches> batches;
  const DataLoaderOptions options;
  const ShardOrder order;
  const base::ShardSpan span;
};

DataLoader::DataLoader(std::shared_ptr<const Batches> batches, const Part& part, const DataLoaderOptions& options)
    : recipe_(std::make_shared<const Recipe>(std::move(batches), part, options)),
      loader_options_{.workers = options.num_workers,
                      .prefetch = options.num_workers * options.prefetch_factor,
                      .timeout_seconds = options.timeout},
      last_(options.total_batches.value_or(std::numeric_limits<std::int64_t>::max())),
      kind_{.samples = samples_per_step(part, options), .shards = part.shards},
      rank_(part.rank),
      kept_{.counted = kind_} {
  if (size() == 0)
    throw UsageError("data loader: " + text_of(recipe_->batches->size()) + " samples make no step of " +
                     text_of(kind_.samples));
}

DataLoader::~DataLoader() = default;

std::int64_t DataLoader::size() const { return recipe_->order.batches(); }

void DataLoader::set_epoch(std::int64_t epoch) {
  adopt();
  check({epoch, 0});
  if (kept_.passed != 0 || epoch != kept_.place.epoch) kept_.place = {epoch, 0};
  kept_.passed = 0;
}

std::optional<Batch> DataLoader::next() {
  DataLoaderState& place = kept_.place;
  adopt();
  check(place);
  if (std::exchange(kept_.passed, 0) != 0) place = {place.epoch + 1, 0};
  if (place.epoch * size() + place.batch >= last_) return std::nullopt;
  if (place.batch == size()) {
    kept_.passed = 1;
    return std::nullopt;
  }
  try {
    std::optional<Batch> batch = loader_at(place).next();
    ++place.batch;
    return batch;
  } catch (...) {  // its threads have stopped
    loader_.reset();
    throw;
  }
}

std::map<std::string, std::size_t> DataLoader::place_in_kept() {
  const std::size_t place = offsetof(Kept, place);
  return {{"epoch", place + offsetof(DataLoaderState, epoch)},
          {"batch", place + offsetof(DataLoaderState, batch)},
          {"seen", place + offsetof(DataLoaderState, seen)}};
}

void DataLoader::restore(const DataLoaderState& state) {
  check(state);
  kept_ = {.place = state, .counted = kind_};
}

LoaderStatistics DataLoader::statistics() const { return loader_ ? loader_->statistics() : LoaderStatistics(); }

// The batch before goes first: its memory can be the next one's.
void DataLoader::advance() {
  current_.reset();
  current_ = next();
}

void DataLoader::check(const DataLoaderState& state) const {
  const std::int64_t epochs = std::numeric_limits<std::int64_t>::max() / size();  // more cannot be counted
  const ShardOrder& order = recipe_->order;
  const bool is_seen = state.seen >= 0 && state.seen <= order.size();
  if (is_seen && state.epoch >= 0 && state.epoch < epochs && state.batch >= order.first_batch(state.seen) &&
      state.batch <= size())
    return;
  throw UsageError("data loader: no place behind " + text_of(state.batch) + " batches of epoch " +
                   text_of(state.epoch) + (state.seen == 0 ? "" : " and " + text_of(state.seen) + " samples before") +
                   ", an epoch has " + text_of(size()) + ": the same set as before expected");
}

// What is kept as a place of this loader. Batches of any kind take the order of an epoch from its front, for shards
// take every S-th sample of it: so what was taken is a number of samples, and the rest of the order is what is left.
DataLoader::Kept DataLoader::adopted() const {
  const BatchKind& theirs = kept_.counted;
  if (theirs == kind_) return kept_;
  const ShardOrder& order = recipe_->order;
  const DataLoaderState& place = kept_.place;
  if (theirs.shards < 1 || theirs.samples < 1 || theirs.samples > kMostSamples || theirs.samples % theirs.shards != 0 ||
      theirs.shards > std::numeric_limits<int>::max() || place.seen < 0 || place.seen > order.size())
    throw UsageError("data loader: what is kept is no place of a loader");
  const auto batches = [&](std::int64_t samples) {
    return base::batches_per_epoch(samples, int(theirs.shards), theirs.samples / theirs.shards,
                                   recipe_->options.drop_last);
  };
  const std::int64_t all = batches(order.size()), first = all - batches(order.size() - place.seen);
  if (place.batch < first || place.batch > all)
    throw UsageError("data loader: no place behind " + text_of(place.batch) + " batches of " + text_of(theirs.samples) +
                     " samples, of which an epoch has " + text_of(all) + ": the same set as before expected");
  const std::int64_t taken = place.seen + (place.batch - first) * theirs.samples;
  const std::int64_t seen = place.batch == all ? order.size() : taken;
  return {.place = {.epoch = place.epoch, .batch = order.first_batch(seen), .seen = seen},
          .passed = kept_.passed,
          .counted = kind_};
}

void DataLoader::adopt() {
  if (kept_.counted == kind_) return;
  const BatchKind before = kept_.counted;
  kept_ = adopted();
  if (rank_ != 0) return;
  const auto text = [](const BatchKind& kind) {
    return text_of(kind.samples) + " samples in " + text_of(kind.shards) + (kind.shards == 1 ? " shard" : " shards");
  };
  base::tell(STDERR_FILENO, "lockstep: batches are of " + text(kind_) + ", before they were of " + text(before) +
                                ": epoch " + text_of(kept_.place.epoch + 1) + " goes on behind " +
                                text_of(kept_.place.seen) + " of its " + text_of(recipe_->order.size()) + " samples\n");
}

void DataLoader::set_total_batches(std::int64_t total) {
  if (total < 0) throw UsageError("data loader: a total of " + text_of(total) + " batches, 0 or more expected");
  last_ = total;
  loader_ = nullptr;  // its threads know the total of before
}

// Threads begin late: only then is it known where, since what is committed comes with the optimizer.
DeviceLoader& DataLoader::loader_at(const DataLoaderState& place) {
  const std::int64_t number = place.epoch * size() + place.batch;
  if (!loader_ || seen_in(place.epoch, begun_) != place.seen) {
    const auto source = [recipe = recipe_, place](std::int64_t k) { return recipe->make(k, place); };
    loader_ = std::make_unique<DeviceLoader>(source, number, last_, recipe_->options.device, loader_options_);
    begun_ = place;
  } else if (loader_->position() != number) {
    loader_->restore({number});
  }
  return *loader_;
}

}  // namespace lockstep::data
