#pragma once

// Where a run stands in its epoch: what a checkpoint needs of a sampler.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::data {

/// The same on all ranks, and no matter how many there are.
struct SamplerState {
  std::uint64_t epoch = 0;
  std::int64_t consumed = 0;  ///< leading entries of the epoch's order that all ranks together have taken
  std::uint64_t order = 0;    ///< order_hash() of that order: another set, seed or shuffling is noticed

  bool operator==(const SamplerState&) const = default;
};

/// A hash of the entries, equal on all machines.
std::uint64_t order_hash(std::span<const std::int64_t> order);

/// One line: {"consumed":1200,"epoch":3,"order":"0123456789abcdef"}.
std::string to_json(const SamplerState& state);

/// UsageError when the text is not such a line.
SamplerState sampler_state(std::string_view json);

}  // namespace lockstep::data
