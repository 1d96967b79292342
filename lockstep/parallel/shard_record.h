#pragma once

// How the records of passes make a shard's, and those of shards a step's. Pure functions.

#include <cmath>
#include <string>

#include "lockstep/base/tree.h"
#include "lockstep/state/step_record.h"

namespace lockstep::parallel {

/// Adds `more` to a record: the mean over the samples of both. The first keeps its bits.
void add(state::ShardRecord& record, const state::ShardRecord& more);

/// The mean loss over the samples of all `shards` shards; `record_of(shard)` gives a ShardRecord. Where each has as
/// many samples, it is the mean of their means, in tree order.
template <class RecordOf>
double mean_loss(int shards, RecordOf&& record_of) {
  double samples = 0;
  for (int shard = 0; shard < shards; ++shard) samples += double(record_of(shard).samples);
  const auto weighted = [&](int shard) {
    const state::ShardRecord& record = record_of(shard);
    if (samples > 0 && record.samples == 0) return 0.0;  // whatever loss nothing has
    return samples > 0 ? record.loss * (double(record.samples) * shards / samples) : record.loss;  // times 1, mostly
  };
  return base::tree_sum(0, shards, weighted) / shards;
}

/// By what a step multiplies sums over the shards of the job.
struct MeanWeight {
  double value = 0;
  std::string why_not;  ///< empty, or why there is none
};

/// One over what the denominators of the shards add up to; one over `shards` where none is given.
template <class RecordOf>
MeanWeight mean_weight(int shards, RecordOf&& record_of) {
  double sum = 0;
  int without = 0;
  for (int shard = 0; shard < shards; ++shard) {
    const double share = record_of(shard).denominator;
    if (std::isnan(share))
      ++without;
    else
      sum += share;
  }
  if (without == shards) return {.value = 1.0 / shards};
  if (without > 0) return {.why_not = "some ranks gave a denominator and some gave none"};
  if (sum == 0) return {.why_not = "the denominators of all ranks add up to 0"};
  if (const float value = float(1 / sum); value == 0 || !std::isfinite(value))
    return {.why_not = "the denominators of all ranks add up to what float32 cannot divide by"};
  return {.value = 1 / sum};
}

}  // namespace lockstep::parallel
