#include "lockstep/data/standardizer.h"

#include <ATen/ops/aminmax.h>
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

// UsageError that names the first column of which this is false.
void check_columns(const at::Tensor& good, const char* otherwise) {
  if (good.all().item<bool>()) return;
  const std::int64_t column = good.to(at::kInt).argmin().item<std::int64_t>() + 1;
  throw UsageError("standardizer: column " + std::to_string(column) + " holds " + otherwise);
}

}  // namespace

Standardizer::Standardizer(const at::Tensor& data) {
  const at::Tensor rows = rows_as_doubles(data);
  check_columns(rows.isfinite().all(0), "a number that is not finite");
  // The mean of equal numbers may round to another one, and what is left of them would count as their deviation.
  const auto [least, most] = at::aminmax(rows, 0);
  mean_ = at::where(least.eq(most), most, rows.mean(0));
  const at::Tensor deviation = rows.sub(mean_).square().mean(0).sqrt();
  check_columns(deviation.isfinite(), "numbers too large for a standard deviation in float64");
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
