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
  return 3 * std::int64_t(shard) + (std::isnan(loss) ? 0 : loss > 0 ? 1 : 2);
}

at::Tensor on(at::Device device, const at::Tensor& tensor) { return tensor.defined() ? tensor.to(device) : tensor; }

// Returns the fault of the first loss that is no finite number; there it ends if `guarded`.
std::int64_t pass(parallel::Engine& engine, const data::Batch& batch, const ShardLoss& loss, amp::GradScaler& scaler,
                  bool guarded) {
  const at::Device device = engine.device();
  for (auto& shard : parallel::Shards(engine, on(device, batch.data), on(device, batch.target))) {
    const at::Tensor found = loss(shard);
    if (guarded && !std::isfinite(found.item<double>())) return fault_of(shard.index, found.item<double>());
    scaler.scale(found).backward();
    engine.record(found.item<double>(), shard.data.size(0));  // a device has gone on with backward meanwhile
  }
  return kAllFinite;
}

}  // namespace

void run_shards(parallel::Engine& engine, const data::Batch& batch, const ShardLoss& loss, amp::GradScaler& scaler) {
  pass(engine, batch, loss, scaler, false);
}

void run_guarded_shards(parallel::Engine& engine, const data::Batch& batch, const ShardLoss& loss,
                        amp::GradScaler& scaler) {
  const at::Tensor first = at::full({1}, pass(engine, batch, loss, scaler, true), at::kLong);
  engine.group().all_reduce(first, comm::ReduceOp::min);
  const auto fault = first.item<std::int64_t>();
  if (fault == kAllFinite) return;
  const int shard = int(fault / 3), rank = base::rank_of_shard(shard, engine.group().size(), engine.shards());
  throw Error("step " + std::to_string(engine.next_step()) + ": the loss of shard " + std::to_string(shard) +
              ", of rank " + std::to_string(rank) + ", is " + kNotFinite[fault % 3]);
}

}  // namespace lockstep::train
