#pragma once

// A safetensors file whose tensors are read one by one, each to where it belongs.

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/store/input_file.h"

namespace lockstep::checkpoint {

/// The header is checked against the file at first: UsageError of read_safetensors(). Any thread.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  /// Names, shapes and dtypes: tensors without memory (of the device meta).
  const TensorMap& described() const { return described_; }

  /// Reads the tensor `name` into `place`, which has its shape and dtype, in CPU memory with any strides.
  void read(const std::string& name, at::Tensor place) const;

 private:
  InputFile file_;
  TensorMap described_;
  std::map<std::string, std::uint64_t> offsets_;  // in the file
};

}  // namespace lockstep::checkpoint
