#pragma once

// This rank's shards while the gradients of a step are gathered: which one is active, in which pass, with which random
// numbers, module buffers and record.
//
// A shard is passed once per step, or several times (gradient accumulation). Each pass draws random numbers of its own.
// Module buffers go on from pass to pass, each shard's for itself, from the committed ones; shard 0's last are those of
// the next state. Records add up: their mean counts every sample once.

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/base/tree.h"
#include "lockstep/parallel/module_buffers.h"
#include "lockstep/parallel/shards.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

class ShardSession {
 public:
  ShardSession(const state::SharedState& state, ModuleBuffers& buffers, ShardSpan mine, std::uint64_t seed);

  std::optional<int> active() const { return active_; }
  /// Whether a pass of the step has begun.
  bool begun() const;

  /// Starts the next pass of `shard`, one of this rank's, in step `step`. Error naming a module buffer that was edited
  /// while no shard was active.
  void open(int shard, std::uint64_t step);

  /// Adds a mean loss over `samples` samples to the active shard's record.
  void record(double loss, std::int64_t samples);

  /// A gradient of the active pass is in its slot.
  void gradient_came() { gradients_came_ = true; }

  /// Drops what passes whose gradients are dropped have left, records and module buffers: all but an active one without
  /// any gradients. The passes count on: no random number is drawn twice in a step.
  void discard_gradients();

  /// Ends the active pass; the records are where the step finds them.
  void close();

  /// Writes shard 0's module buffers (its rank, after close()).
  void write_module_buffers(std::byte* to) const;

  /// The next step begins: no pass yet, module buffers as committed.
  void restart();

 private:
  struct Shard {
    std::uint64_t passes = 0;
    bool from_committed = true;  ///< the next pass begins with the committed module buffers
    state::ShardRecord record;
    std::vector<std::byte> module_buffers;
  };
  Shard& at(int shard) { return shards_[std::size_t(shard - mine_.first)]; }
  const std::byte* committed_buffers() const;
  void keep_active();

  const state::SharedState& state_;
  ModuleBuffers& buffers_;
  const ShardSpan mine_;
  const std::uint64_t seed_;
  std::vector<Shard> shards_;
  std::optional<int> active_;
  state::ShardRecord pass_record_;  ///< of the active pass
  bool gradients_came_ = false;     ///< in the active pass
};

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
    return samples > 0 ? record.loss * (double(record.samples) * shards / samples) : record.loss;  // times 1, mostly
  };
  return base::tree_sum(0, shards, weighted) / shards;
}

}  // namespace lockstep::parallel
