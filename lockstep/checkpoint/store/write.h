#pragma once

// Writes a checkpoint so that it is there whole, verified and on disk, or not at all, whenever the process or the
// machine stops.

#include <string>
#include <vector>

#include "lockstep/checkpoint/store/retention.h"
#include "lockstep/checkpoint/store/state_json.h"
#include "lockstep/checkpoint/store/tensor_file.h"

namespace lockstep::checkpoint {

/// A file of tensors.
struct TensorSet {
  std::string file;  ///< "model.safetensors"
  std::vector<TensorBytes> tensors;
};

inline constexpr const char* kModelName = "model.safetensors";
inline constexpr const char* kOptimizerName = "optimizer.safetensors";
inline constexpr const char* kAverageName = "ema.safetensors";

/// What a checkpoint holds; the memory of its tensors stays as it is while it is written.
struct Contents {
  SavedState state;
  std::vector<TensorSet> files;  ///< kModelName is one of them
};

/// Makes `folder`/step-…: written under another name, synced, read back, given its name; then the link `last` leads to
/// it, `best` to the one with the best metric, and those that `retention` does not keep are removed. One that is there
/// for the same step is replaced. Returns its path.
/// Error when the system refuses or what was read back is not what was written: then `last` leads to a whole checkpoint
/// as before. No half one is left, but where the last calls failed the new one may be there, whole. UsageError for
/// contents that no file can hold. One thread of one process at a time for a folder.
std::string write_checkpoint(const std::string& folder, const Contents& contents, const Retention& retention = {});

}  // namespace lockstep::checkpoint
