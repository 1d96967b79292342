#include "lockstep/evaluation/predict.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::evaluation {
namespace {

constexpr std::int64_t kMostDimensions = 16;

/// What every row is like.
struct RowShape {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes;
  bool operator==(const RowShape&) const = default;
};

/// What the model said of a batch of this rank.
struct Said {
  std::int64_t number = 0;
  std::int64_t first = 0;
  std::int64_t samples = 0;
  at::Tensor rows;
};

bool has_rows(const Said& said) {
  const at::Tensor& rows = said.rows;
  return rows.defined() && rows.layout() == at::kStrided && rows.device().is_cpu() && rows.dim() >= 1 &&
         rows.dim() <= kMostDimensions && rows.size(0) == said.samples;
}

RowShape shape_of(const at::Tensor& rows) { return {rows.scalar_type(), rows.sizes().slice(1).vec()}; }

// Collective: the shape of the first batch's rows, which are rank 0's. UsageError on all ranks when they are none.
RowShape first_shape(comm::Group& group, const std::vector<Said>& mine) {
  // How many dimensions (-1: none), dtype, sizes.
  const at::Tensor message = at::zeros({2 + kMostDimensions}, at::kLong);
  std::int64_t* const words = message.data_ptr<std::int64_t>();
  if (group.rank() == 0) {
    words[0] = -1;
    if (has_rows(mine.front())) {
      const RowShape shape = shape_of(mine.front().rows);
      words[0] = std::int64_t(shape.sizes.size());
      words[1] = std::int64_t(shape.dtype);
      std::copy(shape.sizes.begin(), shape.sizes.end(), words + 2);
    }
  }
  group.broadcast(message);
  if (words[0] < 0)
    throw UsageError("predict: the first batch gave no tensor in CPU memory with a row for each of its samples");
  return {at::ScalarType(words[1]), {words + 2, words + 2 + words[0]}};
}

// Collective. UsageError on all ranks when a batch gave no rows of this shape.
void check_all(comm::Group& group, const std::vector<Said>& mine, const RowShape& shape, std::int64_t samples,
               std::int64_t batch_size) {
  const at::Tensor wrong = at::zeros({batches_of(samples, batch_size)}, at::kInt);
  int* const flags = wrong.data_ptr<int>();
  for (const Said& said : mine) flags[said.number] = has_rows(said) && shape_of(said.rows) == shape ? 0 : 1;
  group.all_reduce(wrong);
  const int* const first = std::find(flags, flags + wrong.numel(), 1);
  if (first == flags + wrong.numel()) return;
  const std::int64_t sample = (first - flags) * batch_size;
  throw UsageError("predict: samples " + std::to_string(sample) + " to " +
                   std::to_string(std::min(sample + batch_size, samples) - 1) +
                   " gave other rows than the first batch: every batch must give a row for each sample, of one shape "
                   "and dtype");
}

// Collective: where a rank has no rows there are zeros. As bytes, whose sum with zeros is exact whatever they mean.
void add_over_ranks(comm::Group& group, const at::Tensor& rows) {
  if (rows.numel() > 0) group.all_reduce(at::from_blob(rows.data_ptr(), {std::int64_t(rows.nbytes())}, at::kByte));
}

}  // namespace

at::Tensor predict(torch::nn::Module& model, comm::Group& group, const std::shared_ptr<const data::Batches>& set,
                   const RowsOf& rows_of, const PassOptions& options) {
  const at::NoGradGuard no_grad;
  std::vector<Said> mine;
  for_each_batch(model, group, set, options, [&](const PlacedBatch& placed) {
    mine.push_back({placed.number, placed.first, placed.batch.data.size(0), rows_of(placed.batch)});
  });
  const RowShape shape = first_shape(group, mine);
  check_all(group, mine, shape, set->size(), options.batch_size);
  std::vector<std::int64_t> sizes{set->size()};
  sizes.insert(sizes.end(), shape.sizes.begin(), shape.sizes.end());
  const at::Tensor all = at::zeros(sizes, shape.dtype);
  for (const Said& said : mine) all.narrow(0, said.first, said.samples).copy_(said.rows);
  add_over_ranks(group, all);
  return all;
}

at::Tensor predict(parallel::Engine& ddp, const std::shared_ptr<const data::Batches>& set, const RowsOf& rows_of,
                   const PassOptions& options) {
  ddp.begin_evaluation();
  return predict(ddp.module(), ddp.group(), set, rows_of, options);
}

}  // namespace lockstep::evaluation
