#include "lockstep/parallel/hooks/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/hooks/saved_hook.h"

namespace lockstep::parallel {
namespace {

constexpr std::uint32_t kSeeds = 1'000'000'000;
constexpr int kRankOfQr = 3;  // from here on PyTorch takes QR, up to it Gram-Schmidt, whose bits are others

// The columns of each matrix [count, rows, columns].
void orthogonalize(const at::Tensor& matrices, double epsilon) {
  const std::int64_t columns = matrices.size(2);
  const bool half = matrices.scalar_type() == at::kHalf || matrices.scalar_type() == at::kBFloat16;
  if (columns >= kRankOfQr && !half) {
    matrices.copy_(std::get<0>(at::linalg_qr(matrices)));
    return;
  }
  for (std::int64_t i = 0; i < columns; ++i) {
    at::Tensor column = matrices.narrow(2, i, 1);
    const at::Tensor norm = at::linalg_vector_norm(column, 2, 1, /*keepdim=*/true);
    column.div_(epsilon == 0 ? norm : norm + epsilon);
    if (i + 1 == columns) continue;
    at::Tensor rest = matrices.narrow(2, i + 1, columns - i - 1);
    rest.sub_((column * rest).sum(1, /*keepdim=*/true) * column);
  }
}

// Matrices of one shape [count, n, m] that are compressed together, and where they come from.
struct Batch {
  at::Tensor matrices;
  std::vector<at::Tensor> from;  // several, where `matrices` is a copy
  at::Tensor p, q;
};

struct Cut {
  std::vector<Batch> batches;
  std::vector<at::Tensor> whole;
  std::int64_t p_numel = 0, q_numel = 0;
};

int rank_of(const at::Tensor& matrices, int wanted) {
  return int(std::min({matrices.size(-2), matrices.size(-1), std::int64_t(wanted)}));
}

// In the order in which PyTorch meets the shapes, by which it draws random numbers.
std::vector<std::vector<at::Tensor>> by_shape(const std::vector<at::Tensor>& matrices) {
  std::vector<std::vector<at::Tensor>> shapes;
  for (const at::Tensor& matrix : matrices) {
    const auto same = std::find_if(shapes.begin(), shapes.end(),
                                   [&](const auto& one) { return one.front().sizes() == matrix.sizes(); });
    if (same == shapes.end())
      shapes.push_back({matrix});
    else
      same->push_back(matrix);
  }
  return shapes;
}

Cut cut(const std::vector<at::Tensor>& gradients, const PowerSGDOptions& options, PowerSGDState::Stats& stats) {
  Cut made;
  std::vector<at::Tensor> compressed;
  for (const at::Tensor& gradient : gradients) {
    stats.numel_before += gradient.numel();
    const bool is_matrix = gradient.dim() > 0 && gradient.numel() > 0;
    const at::Tensor matrix = is_matrix ? gradient.view({gradient.size(0), -1}) : gradient;
    const std::int64_t small =
        is_matrix ? (matrix.size(0) + matrix.size(1)) * rank_of(matrix, options.matrix_approximation_rank)
                  : gradient.numel();
    if (is_matrix && double(small) * options.min_compression_rate < double(gradient.numel())) {
      compressed.push_back(matrix);
      stats.numel_after += small;
    } else {
      made.whole.push_back(gradient);
      stats.numel_after += gradient.numel();
    }
  }
  for (auto& same : by_shape(compressed)) {
    if (options.batch_tensors_with_same_shape && same.size() > 1)
      made.batches.push_back({at::stack(same), same, {}, {}});
    else
      for (const at::Tensor& matrix : same) made.batches.push_back({matrix.unsqueeze(0), {}, {}, {}});
  }
  for (const Batch& batch : made.batches) {
    const int rank = rank_of(batch.matrices, options.matrix_approximation_rank);
    made.p_numel += batch.matrices.size(0) * batch.matrices.size(1) * rank;
    made.q_numel += batch.matrices.size(0) * batch.matrices.size(2) * rank;
  }
  return made;
}

void place(std::vector<Batch>& batches, int wanted, const at::Tensor& p, const at::Tensor& q) {
  std::int64_t p_at = 0, q_at = 0;
  for (Batch& batch : batches) {
    const std::int64_t count = batch.matrices.size(0), n = batch.matrices.size(1), m = batch.matrices.size(2);
    const int rank = rank_of(batch.matrices, wanted);
    batch.p = p.narrow(0, p_at, count * n * rank).view({count, n, rank});
    batch.q = q.narrow(0, q_at, count * m * rank).view({count, m, rank});
    p_at += count * n * rank;
    q_at += count * m * rank;
  }
}

void average_whole(comm::Group& group, const std::vector<at::Tensor>& whole) {
  if (whole.empty()) return;
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : whole) flat.push_back(tensor.view({-1}));
  const at::Tensor together = at::cat(flat);
  group.all_reduce(together);
  together.div_(group.size());
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : flat) {
    tensor.copy_(together.narrow(0, offset, tensor.numel()));
    offset += tensor.numel();
  }
}

void check(const PowerSGDOptions& options) {
  const auto refuse = [](const char* name, const std::string& value, const char* right) {
    throw UsageError(std::string("PowerSGD: ") + name + " is " + value + "; " + right);
  };
  if (options.matrix_approximation_rank < 1)
    refuse("matrix_approximation_rank", std::to_string(options.matrix_approximation_rank), "at least 1");
  if (options.start_powerSGD_iter < 0)
    refuse("start_powerSGD_iter", std::to_string(options.start_powerSGD_iter), "at least 0");
  if (!(options.min_compression_rate > 0))
    refuse("min_compression_rate", std::to_string(options.min_compression_rate), "more than 0");
  if (!(options.orthogonalization_epsilon >= 0))
    refuse("orthogonalization_epsilon", std::to_string(options.orthogonalization_epsilon), "not negative");
}

}  // namespace

PowerSGDState::PowerSGDState(std::shared_ptr<comm::Group> process_group, PowerSGDOptions options)
    : group_(std::move(process_group)), options_(options), rng_(options.random_seed) {
  check(options_);
}

PowerSGDState::Stats PowerSGDState::compression_stats() const {
  Stats stats = stats_;
  if (stats.numel_after > 0) stats.rate = double(stats.numel_before) / double(stats.numel_after);
  return stats;
}

bool PowerSGDState::warms_up(GradBucket& bucket) {
  if (iter_ >= options_.start_powerSGD_iter) return false;
  bucket.buffer().div_(group_->size());  // first, as PyTorch: in float16 it makes a difference
  group_->all_reduce(bucket.buffer());
  count(bucket);
  return true;
}

void PowerSGDState::add_error(std::size_t bucket, const at::Tensor& input) {
  if (!options_.use_error_feedback) return;
  const auto left = error_.find(bucket);
  if (left == error_.end()) return;
  if (left->second.numel() != input.numel())
    throw UsageError("PowerSGD: the state has an error of " + std::to_string(left->second.numel()) +
                     " elements for bucket " + std::to_string(bucket) + ", which has " + std::to_string(input.numel()) +
                     "; it is of another model");
  left->second = left->second.to(input.device());  // from a checkpoint
  input.add_(left->second);
}

bool PowerSGDState::prepare(std::size_t bucket, at::IntArrayRef p_sizes, at::IntArrayRef q_sizes,
                            const at::TensorOptions& options) {
  if (options_.warm_start && q_.contains(bucket)) {
    if (p_[bucket].sizes() != p_sizes || q_[bucket].sizes() != q_sizes)
      throw UsageError("PowerSGD: the state has matrices of other sizes for bucket " + std::to_string(bucket) +
                       "; it is of another model or rank");
    p_[bucket] = p_[bucket].to(options.device());  // from a checkpoint
    q_[bucket] = q_[bucket].to(options.device());
    return true;
  }
  p_[bucket] = at::empty(p_sizes, options);
  q_[bucket] = at::empty(q_sizes, options);
  return false;
}

at::Generator PowerSGDState::next_generator() {
  constexpr std::uint32_t kMask = (1u << 30) - 1;  // numpy draws bits until they are a number below kSeeds
  std::uint32_t seed = kSeeds;
  while (seed >= kSeeds) seed = std::uint32_t(rng_()) & kMask;
  return at::detail::createCPUGenerator(seed);
}

void PowerSGDState::end_step(std::size_t bucket, const at::Tensor& wanted, const at::Tensor& got) {
  if (options_.use_error_feedback) error_[bucket] = wanted - got;
  if (options_.warm_start) return;
  p_.erase(bucket);
  q_.erase(bucket);
}

GradFuture powerSGD_hook(PowerSGDState& state, GradBucket& bucket) {
  const at::Tensor input = bucket.buffer();
  if (state.warms_up(bucket)) return input;
  comm::Group& group = *state.group_;
  const PowerSGDOptions& options = state.options_;
  state.add_error(bucket.index(), input);
  const at::Tensor wanted = options.use_error_feedback ? input.clone() : at::Tensor();
  Cut made = cut(bucket.gradients(), options, state.stats_);
  const bool warm = state.prepare(bucket.index(), {made.p_numel}, {made.q_numel}, input.options());
  const at::Tensor p = state.p_[bucket.index()], q = state.q_[bucket.index()];
  place(made.batches, options.matrix_approximation_rank, p, q);
  at::Generator generator = warm ? at::Generator() : state.next_generator();
  for (Batch& batch : made.batches) {
    if (!warm) batch.q.copy_(at::randn(batch.q.sizes(), generator, batch.q.scalar_type()));
    orthogonalize(batch.q, options.orthogonalization_epsilon);
    at::bmm_out(batch.p, batch.matrices, batch.q);
  }
  average_whole(group, made.whole);
  group.all_reduce(p);  // a sum will do: its columns become unit vectors
  for (Batch& batch : made.batches) {
    orthogonalize(batch.p, options.orthogonalization_epsilon);
    at::bmm_out(batch.q, batch.matrices.transpose(1, 2), batch.p);
  }
  group.all_reduce(q);
  q.div_(group.size());
  for (Batch& batch : made.batches) {
    at::bmm_out(batch.matrices, batch.p, batch.q.transpose(1, 2));
    for (std::size_t i = 0; i < batch.from.size(); ++i) batch.from[i].copy_(batch.matrices[std::int64_t(i)]);
  }
  state.end_step(bucket.index(), wanted, input);
  state.count(bucket);
  return input;
}

GradFuture batched_powerSGD_hook(PowerSGDState& state, GradBucket& bucket) {
  if (state.warms_up(bucket)) return bucket.buffer();
  comm::Group& group = *state.group_;
  const PowerSGDOptions& options = state.options_;
  const std::int64_t length = bucket.buffer().numel();
  auto side = std::int64_t(std::sqrt(double(length)));
  while (side * side < length) ++side;
  const int rank = int(std::min<std::int64_t>(options.matrix_approximation_rank, side));  // no matrix has more
  state.stats_.numel_before += length;
  state.stats_.numel_after += side * rank * 2;
  const at::Tensor input = at::zeros({side * side}, bucket.buffer().options());
  input.narrow(0, 0, length).copy_(bucket.buffer());
  state.add_error(bucket.index(), input);
  const at::Tensor wanted = options.use_error_feedback ? input.clone() : at::Tensor();
  const at::Tensor matrix = input.view({side, side});
  const bool warm = state.prepare(bucket.index(), {side, rank}, {side, rank}, input.options());
  at::Tensor p = state.p_[bucket.index()], q = state.q_[bucket.index()];
  if (!warm) q.copy_(at::randn(q.sizes(), state.next_generator(), q.scalar_type()));
  orthogonalize(q.unsqueeze(0), 0);
  at::matmul_out(p, matrix, q);
  group.all_reduce(p);
  orthogonalize(p.unsqueeze(0), 0);
  at::matmul_out(q, matrix.t(), p);
  group.all_reduce(q);
  q.div_(group.size());
  at::Tensor product = matrix;
  at::matmul_out(product, p, q.t());
  state.end_step(bucket.index(), wanted, input);
  state.count(bucket);
  return input.narrow(0, 0, length);
}

std::map<std::string, at::Tensor> PowerSGDState::state_dict() const {
  SavedHook saved;
  saved.put("iter", iter_);
  saved.put("total_numel_before_compression", stats_.numel_before);
  saved.put("total_numel_after_compression", stats_.numel_after);
  saved.put("rng", rng_);
  saved.put("error_dict", error_);
  saved.put("p_memory_dict", p_);
  saved.put("q_memory_dict", q_);
  return saved.tensors();
}

void PowerSGDState::load_state_dict(const std::map<std::string, at::Tensor>& saved) {
  SavedHook from("PowerSGD", saved);
  PowerSGDState read = *this;  // nothing is half read
  from.get("iter", read.iter_);
  from.get("total_numel_before_compression", read.stats_.numel_before);
  from.get("total_numel_after_compression", read.stats_.numel_after);
  from.get("rng", read.rng_);
  from.get("error_dict", read.error_);
  from.get("p_memory_dict", read.p_);
  from.get("q_memory_dict", read.q_);
  from.end();
  *this = std::move(read);
}

}  // namespace lockstep::parallel
