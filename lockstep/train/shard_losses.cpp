#include "lockstep/train/shard_losses.h"

#include <ATen/ops/full.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/shard_rank.h"
#include "lockstep/comm/group.h"

namespace lockstep::train {
namespace {

// A loss that is none, as one number that ranks can compare: the first shard's is the smallest.
constexpr std::int64_t kAllFinite = std::numeric_limits<std::int64_t>::max();
constexpr const char* kNotFinite[] = {"nan", "inf", "-inf"};

std::int64_t fault_of(int shard, double loss) {
  if (std::isfinite(loss)) return kAllFinite;
  return 3 * std::int64_t(shard) + (std::isnan(loss) ? 0 : loss > 0 ? 1 : 2);
}

at::Tensor on(at::Device device, const at::Tensor& tensor) { return tensor.defined() ? tensor.to(device) : tensor; }

// look(shard, its loss) comes before the backward of each.
template <class Look>
void pass(parallel::Engine& engine, const data::Batch& batch, const ShardLoss& loss, amp::GradScaler& scaler,
          const Look& look) {
  const at::Device device = engine.device();
  for (auto& shard : parallel::Shards(engine, on(device, batch.data), on(device, batch.target))) {
    const at::Tensor found = loss(shard);
    look(shard.index, found);
    scaler.scale(found).backward();
    engine.record(found.item<double>(), shard.data.size(0));  // a device has gone on with backward meanwhile
  }
}

// Collective. Throws on all ranks when one has a fault.
void agree_about(std::int64_t fault, parallel::Engine& engine) {
  const at::Tensor first = at::full({1}, fault, at::kLong);
  engine.group().all_reduce(first, comm::ReduceOp::min);
  const auto found = first.item<std::int64_t>();
  if (found == kAllFinite) return;
  const int shard = int(found / 3), rank = base::rank_of_shard(shard, engine.group().size(), engine.shards());
  throw Error("step " + std::to_string(engine.next_step()) + ": the loss of shard " + std::to_string(shard) +
              ", of rank " + std::to_string(rank) + ", is " + kNotFinite[found % 3]);
}

}  // namespace

void run_shards(parallel::Engine& engine, const data::Batch& batch, const ShardLoss& loss, amp::GradScaler& scaler) {
  pass(engine, batch, loss, scaler, [](int, const at::Tensor&) {});
}

// Before the last backward: it may send gradients, of a step that is not made, and have collectives of its own, of a
// SyncBatchNorm.
void run_guarded_shards(parallel::Engine& engine, const data::Batch& batch, const ShardLoss& loss,
                        amp::GradScaler& scaler) {
  pass(engine, batch, loss, scaler, [&engine](int shard, const at::Tensor& found) {
    const std::int64_t fault = fault_of(shard, found.item<double>());
    const bool is_last = shard + 1 == engine.local_shards().last;
    if (is_last || fault != kAllFinite) agree_about(fault, engine);
  });
}

}  // namespace lockstep::train
