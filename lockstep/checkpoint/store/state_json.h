#pragma once

// state.json: what of a checkpoint is no tensor. Any thread.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

struct SavedState {
  std::uint64_t step = 0;
  // The record of that step (state/step_record.h).
  double loss = 0;
  double gradient_norm = 0;
  std::int64_t samples = 0;  ///< the global batch
  std::uint64_t skipped = 0;
  // On what its bits depend. World size is no part of it.
  std::uint64_t seed = 0;
  int shards = 0;
  int threads = 0;  ///< per rank
  // The optimizer.
  std::string optimizer;  ///< which one (optim::Needs::kind)
  int optimizer_arrays = 0;
  std::map<std::string, std::uint64_t> updates;  ///< of each trained parameter
  bool average = false;                          ///< there is an ema.safetensors
  std::uint64_t average_updates = 0;             ///< where no step of ours updates it: how often the program did
  std::map<std::string, std::string> kept;       ///< bytes of others, EngineState::keep()
  std::map<std::string, std::int64_t> place;     ///< numbers of these by name (kept_numbers.h), to be read alone
  std::map<std::string, std::string> versions;
  std::optional<double> metric;  ///< by which checkpoints are compared
  std::string extra = "null";    ///< the user's own JSON
  bool operator==(const SavedState&) const = default;
};

inline constexpr const char* kStateName = "state.json";

/// UsageError when `extra` is no JSON or nested more than 100 deep.
std::string format_state(const SavedState& state);

/// UsageError naming `path`, the key and what belongs there.
SavedState parse_state(std::string_view text, const std::string& path);

/// The state of the checkpoint in folder `path`. UsageError as above, and when there is no such file.
SavedState read_state(const std::string& path);

}  // namespace lockstep::checkpoint
