#pragma once

// MixUp and CutMix on the tensors of a batch.

#include <cstdint>

#include "lockstep/data/batch.h"
#include "lockstep/data/transforms/mixup.h"

namespace lockstep::data {

/// Mixes the samples of the batch in place, and makes soft targets of its labels: float32 [B, classes], what
/// cross_entropy takes. The batch is `shards` equal parts one behind the other, numbered from key.shard on; each
/// is mixed within itself, by draws of its own, so it does not matter which rank has it. Plain loops: safe in a
/// loader thread.
///
/// UsageError unless data is float32 or bfloat16 [B, channels, height, width], contiguous or channels-last,
/// target int64 [B] with labels in 0 … classes−1, and B a multiple of `shards`.
void mix_batch(Batch& batch, const BatchMix& mix, std::int64_t classes, const BatchKey& key, int shards = 1);

}  // namespace lockstep::data
