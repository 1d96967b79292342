#pragma once

// Numbers within kept bytes that state.json tells by their names, too: the place of a loader, for people and programs
// that do not know its layout. Nothing is restored from them. Pure functions; no libtorch.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

/// One std::int64_t of this machine's order of bytes.
struct KeptNumber {
  std::string name;          ///< what state.json calls it: "epoch"
  std::string kept;          ///< the name of the bytes that it is in (EngineState::keep()): "loader"
  std::uint64_t offset = 0;  ///< where it begins in them
  bool operator==(const KeptNumber&) const = default;
};

/// All of `offsets`, names and places in the bytes called `kept`.
std::vector<KeptNumber> place_of(const std::string& kept, const std::map<std::string, std::size_t>& offsets);

/// UsageError naming the number whose bytes are not kept, or are too few; `sizes` by the bytes' names.
void check_numbers(const std::vector<KeptNumber>& numbers, const std::map<std::string, std::size_t>& sizes);

/// Their values in the bytes by name. UsageError as above.
std::map<std::string, std::int64_t> numbers_in(const std::map<std::string, std::string>& kept,
                                               const std::vector<KeptNumber>& numbers);

}  // namespace lockstep::checkpoint
