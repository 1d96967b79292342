#pragma once

// Hashes by which states are compared: XXH3, by xxHash.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace lockstep::state {

std::uint64_t hash64(std::string_view bytes);

/// XXH3-128 as 32 hexadecimal digits.
std::string hash128(std::string_view bytes);

/// The hash of named tensors: XXH3-128 of each over its row-major logical bytes, then over
/// the list of (name, dtype, shape, hash) in name order. Strides and where the tensors live
/// do not matter; names, dtypes, shapes and values do.
std::string tensors_hash(const std::map<std::string, at::Tensor>& tensors);

}  // namespace lockstep::state
