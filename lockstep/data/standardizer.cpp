#include "lockstep/data/standardizer.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <sstream>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

at::Tensor rows_as_doubles(const at::Tensor& data) {
  if (data.defined() && data.dim() == 2 && data.size(0) > 0) return data.detach().to(at::kDouble);
  std::ostringstream found;
  if (data.defined())
    found << data.scalar_type() << " " << data.sizes();
  else
    found << "no tensor";
  throw UsageError("standardizer: " + found.str() + ", [rows, columns] with at least one row expected");
}

}  // namespace

Standardizer::Standardizer(const at::Tensor& data) {
  const at::Tensor rows = rows_as_doubles(data);
  mean_ = rows.mean(0);
  const at::Tensor finite = mean_.isfinite();
  if (!finite.all().item<bool>())
    throw UsageError("standardizer: column " + std::to_string(finite.to(at::kInt).argmin().item<std::int64_t>() + 1) +
                     " holds a number that is not finite");
  const at::Tensor deviation = rows.sub(mean_).square().mean(0).sqrt();
  scale_ = at::where(deviation.eq(0), at::ones_like(deviation), deviation);
}

at::Tensor Standardizer::operator()(const at::Tensor& data) const {
  const at::Tensor rows = data.defined() && data.dim() == 2 ? data.detach().to(at::kDouble) : rows_as_doubles(data);
  if (rows.size(1) != mean_.size(0))
    throw UsageError("standardizer: " + std::to_string(rows.size(1)) + " columns, " + std::to_string(mean_.size(0)) +
                     " expected, as of the rows that it has learned from");
  const at::Tensor standard = rows.sub(mean_).div(scale_);
  return standard.to(data.is_floating_point() ? data.scalar_type() : at::kFloat);
}

}  // namespace lockstep::data
