#pragma once

// The state of a communication hook as named tensors, which go into a file as weights do.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>

namespace lockstep::parallel {

using ByBucket = std::map<std::size_t, at::Tensor>;

class SavedHook {
 public:
  SavedHook() = default;
  /// To read from; `hook` begins its errors.
  SavedHook(std::string hook, std::map<std::string, at::Tensor> tensors)
      : hook_(std::move(hook)), tensors_(std::move(tensors)) {}

  const std::map<std::string, at::Tensor>& tensors() const { return tensors_; }

  void put(const std::string& name, std::int64_t number);
  void put(const std::string& name, const std::mt19937& engine);
  /// A copy of each, as "name.BUCKET".
  void put(const std::string& name, const ByBucket& tensors);

  // UsageError naming what is missing or of another kind.
  void get(const std::string& name, std::int64_t& number);
  void get(const std::string& name, std::mt19937& engine);
  void get(const std::string& name, ByBucket& tensors);
  /// UsageError naming what nobody asked for.
  void end() const;

 private:
  const at::Tensor& numbers(const std::string& name);

  std::string hook_;
  std::map<std::string, at::Tensor> tensors_;
  std::set<std::string> read_;
};

}  // namespace lockstep::parallel
