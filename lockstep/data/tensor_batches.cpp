#include "lockstep/data/tensor_batches.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/picture_set.h"

namespace lockstep::data {
namespace {

at::Tensor checked(const at::Tensor& tensor, const char* what) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || !tensor.device().is_cpu() || tensor.is_quantized() ||
      tensor.dim() == 0) {
    throw UsageError(std::string(what) +
                     " tensor of samples: dense, in CPU memory and of at least one dimension expected");
  }
  // Bytes are copied: views that mean other numbers than lie in memory are written out.
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg();
  const bool rows_in_one_piece = plain.size(0) == 0 || plain.select(0, 0).is_contiguous();
  return rows_in_one_piece ? plain : plain.contiguous();
}

at::Tensor rows_of(const at::Tensor& tensor, std::span<const std::int64_t> indices) {
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape[0] = std::int64_t(indices.size());
  at::Tensor rows = at::empty(shape, tensor.scalar_type());
  if (rows.nbytes() == 0) return rows;
  // The stride only says where rows begin: that of a single row is arbitrary, an expanded tensor's is 0.
  const std::size_t bytes = rows.nbytes() / indices.size();
  const std::ptrdiff_t step = tensor.stride(0) * std::ptrdiff_t(tensor.element_size());
  const char* from = static_cast<const char*>(tensor.const_data_ptr());
  char* to = static_cast<char*>(rows.mutable_data_ptr());
  for (const std::int64_t index : indices) {
    std::memcpy(to, from + index * step, bytes);
    to += bytes;
  }
  return rows;
}

}  // namespace

TensorBatches::TensorBatches(const at::Tensor& data, const at::Tensor& target) : data_(checked(data, "data")) {
  if (!target.defined()) return;
  target_ = checked(target, "target");
  if (target_.size(0) != data_.size(0)) {
    throw UsageError("data of " + std::to_string(data_.size(0)) + " samples, targets of " +
                     std::to_string(target_.size(0)));
  }
}

Batch TensorBatches::make(std::uint64_t /*epoch*/, std::span<const std::int64_t> indices) const {
  for (const std::int64_t index : indices) check_index(index, size());
  Batch batch{rows_of(data_, indices), {}};
  if (target_.defined()) batch.target = rows_of(target_, indices);
  return batch;
}

std::shared_ptr<const TensorBatches> tensors(const at::Tensor& data, const at::Tensor& target) {
  return std::make_shared<TensorBatches>(data, target);
}

}  // namespace lockstep::data
