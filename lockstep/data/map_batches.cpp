#include "lockstep/data/map_batches.h"

#include <ATen/ops/stack.h>

#include <sstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"

namespace lockstep::data::detail {
namespace {

std::string text_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << " " << tensor.sizes();
  return text.str();
}

bool alike(const at::Tensor& one, const at::Tensor& other) {
  if (one.defined() != other.defined()) return false;
  return !one.defined() || (one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type());
}

}  // namespace

void Stack::add(std::int64_t index, const std::function<Batch()>& get) {
  const std::string name = "sample " + std::to_string(index);
  if (index < 0 || index >= size_) throw UsageError(name + ": the set has " + std::to_string(size_) + " samples");
  Batch sample;
  try {
    sample = get();
  } catch (const UsageError& error) {
    throw UsageError(name + ": " + error.what());
  } catch (const std::exception& error) {
    throw Error(name + ": " + base::message_of(error));
  }
  if (!sample.data.defined()) throw UsageError(name + " has no data");
  if (data_.empty()) first_ = index;
  const auto check = [&](const char* what, const at::Tensor& tensor, const at::Tensor& of_first) {
    if (alike(tensor, of_first)) return;
    throw UsageError(name + ": " + what + " " + text_of(tensor) + ", that of sample " + std::to_string(first_) +
                     " is " + text_of(of_first));
  };
  if (!data_.empty()) {
    check("data", sample.data, data_.front());
    check("target", sample.target, target_.front());
  }
  data_.push_back(std::move(sample.data));
  target_.push_back(std::move(sample.target));
}

Batch Stack::batch() const {
  if (data_.empty()) return {};
  return {at::stack(data_), target_.front().defined() ? at::stack(target_) : at::Tensor()};
}

}  // namespace lockstep::data::detail
