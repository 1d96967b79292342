#include "lockstep/parallel/hooks/saved_hook.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <charconv>
#include <sstream>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

void SavedHook::put(const std::string& name, std::int64_t number) { tensors_[name] = at::full({1}, number, at::kLong); }

void SavedHook::put(const std::string& name, const std::mt19937& engine) {
  std::stringstream text;
  text << engine;
  std::vector<std::int64_t> words;
  for (std::int64_t word = 0; text >> word;) words.push_back(word);
  tensors_[name] = at::tensor(words, at::kLong);
}

void SavedHook::put(const std::string& name, const ByBucket& tensors) {
  for (const auto& [bucket, tensor] : tensors) tensors_[name + "." + std::to_string(bucket)] = tensor.clone();
}

const at::Tensor& SavedHook::numbers(const std::string& name) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw UsageError(hook_ + ": the state has no '" + name + "'");
  const at::Tensor& tensor = found->second;
  if (!tensor.defined() || tensor.scalar_type() != at::kLong || tensor.dim() != 1 || tensor.numel() == 0)
    throw UsageError(hook_ + ": '" + name + "' of the state is not a list of int64");
  read_.insert(name);
  return tensor;
}

void SavedHook::get(const std::string& name, std::int64_t& number) {
  number = numbers(name)[0].item<std::int64_t>();
  if (number < 0)
    throw UsageError(hook_ + ": '" + name + "' of the state is " + std::to_string(number) + ", less than 0");
}

void SavedHook::get(const std::string& name, std::mt19937& engine) {
  const at::Tensor words = numbers(name).contiguous();
  std::stringstream text;
  for (std::int64_t i = 0; i < words.numel(); ++i) text << words.const_data_ptr<std::int64_t>()[i] << ' ';
  text >> engine;
  if (!text) throw UsageError(hook_ + ": '" + name + "' of the state is no state of a Mersenne twister");
}

void SavedHook::get(const std::string& name, ByBucket& tensors) {
  tensors.clear();
  const std::string prefix = name + ".";
  for (const auto& [key, tensor] : tensors_) {
    if (!key.starts_with(prefix)) continue;
    std::size_t bucket = 0;
    const char* const end = key.data() + key.size();
    const auto [stop, error] = std::from_chars(key.data() + prefix.size(), end, bucket);
    if (error != std::errc() || stop != end) continue;  // end() names it
    if (!tensor.defined() || !tensor.is_floating_point())
      throw UsageError(hook_ + ": '" + key + "' of the state is not of floating-point numbers");
    tensors[bucket] = tensor.clone();
    read_.insert(key);
  }
}

void SavedHook::end() const {
  for (const auto& [name, tensor] : tensors_)
    if (!read_.contains(name)) throw UsageError(hook_ + ": the state has '" + name + "', which is unknown here");
}

}  // namespace lockstep::parallel
