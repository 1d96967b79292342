#include "lockstep/checkpoint/weights.h"

#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/python_files.h"
#include "lockstep/checkpoint/safetensors_header.h"

namespace lockstep::checkpoint {
namespace {

// A file of a million strange names makes no message of a million names.
constexpr std::size_t kMostDifferences = 1000;

std::vector<std::string> misfits(const TensorMap& wanted, const TensorMap& given) {
  std::vector<std::string> found;
  for (const auto& [name, tensor] : wanted) {
    const auto other = given.find(name);
    if (other == given.end()) {
      found.push_back("missing " + brief(name));
      continue;
    }
    const at::Tensor& value = other->second;
    if (value.sizes() != tensor.sizes()) {
      found.push_back("shape of " + brief(name) + " is " + c10::str(value.sizes()) + ", " + c10::str(tensor.sizes()) +
                      " expected");
    }
    if (value.scalar_type() != tensor.scalar_type()) {
      found.push_back("dtype of " + brief(name) + " is " + c10::str(value.scalar_type()) + ", " +
                      c10::str(tensor.scalar_type()) + " expected");
    }
  }
  for (const auto& [name, value] : given) {
    if (!wanted.contains(name)) found.push_back("unexpected " + brief(name));
  }
  return found;
}

}  // namespace

TensorMap state_dict(const torch::nn::Module& module) {
  TensorMap state;
  for (const auto& item : module.named_parameters()) state.emplace(item.key(), item.value());
  for (const auto& item : module.named_buffers()) state.emplace(item.key(), item.value());
  // An option switched off (BatchNorm without statistics) leaves an undefined entry behind.
  std::erase_if(state, [](const auto& item) { return !item.second.defined(); });
  return state;
}

void check_fits(const TensorMap& wanted, const TensorMap& given, const std::string& source) {
  std::vector<std::string> found = misfits(wanted, given);
  if (found.empty()) return;
  if (found.size() > kMostDifferences) {
    const std::size_t more = found.size() - kMostDifferences;
    found.resize(kMostDifferences);
    found.push_back("and " + std::to_string(more) + " more");
  }
  throw UsageError(source + " does not fit the model: " + base::join(found, "; "));
}

void load_into(torch::nn::Module& module, const TensorMap& tensors, const std::string& source) {
  const TensorMap state = state_dict(module);
  check_fits(state, tensors, source);
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state) at::Tensor(tensor).copy_(tensors.at(name));
}

void add_missing_counts(const TensorMap& wanted, TensorMap& tensors) {
  const std::string count = "num_batches_tracked";
  for (const auto& [name, tensor] : wanted) {
    if (!name.ends_with(count) || tensor.scalar_type() != at::kLong || tensor.dim() != 0) continue;
    const std::string layer = name.substr(0, name.size() - count.size());
    if (tensors.contains(layer + "running_mean")) tensors.emplace(name, at::zeros({}, at::kLong));
  }
}

void load_file_into(torch::nn::Module& module, const std::string& path, const NameMap& names) {
  std::map<std::string, std::string> others;
  TensorMap tensors = read_weights(path, &others, names);
  const TensorMap wanted = state_dict(module);
  add_missing_counts(wanted, tensors);
  check_read(wanted, tensors, others, "file " + path);
  load_into(module, tensors, "file " + path);
}

}  // namespace lockstep::checkpoint
