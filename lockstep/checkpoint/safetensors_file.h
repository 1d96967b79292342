#pragma once

// A safetensors file whose tensors are read one by one, each to where it belongs.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/store/input_file.h"

namespace lockstep::checkpoint {

/// The header is checked against the file at first: UsageError of read_safetensors(). Any thread.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  /// Names, shapes and dtypes: tensors without memory (of the device meta).
  const TensorMap& described() const { return described_; }

  /// A tensor of the file and where it goes: of its shape and dtype, in CPU memory with any strides.
  using Places = std::vector<std::pair<std::string, at::Tensor>>;

  /// Reads each to its place, on several threads.
  void read(Places places) const;

 private:
  void read(const std::string& name, const at::Tensor& place) const;

  InputFile file_;
  TensorMap described_;
  std::map<std::string, std::uint64_t> offsets_;  // in the file
};

}  // namespace lockstep::checkpoint
