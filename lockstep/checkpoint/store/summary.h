#pragma once

// What is in a checkpoint, and which of them a folder has, as text for people and as JSON for programs. Manifests and
// state.json are read, tensors are not: verify() tells whether those are whole.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/store/manifest.h"
#include "lockstep/checkpoint/store/state_json.h"

namespace lockstep::checkpoint {

/// A checkpoint of a folder.
struct Listed {
  std::uint64_t step = 0;
  std::string path;
  std::string weights;  ///< the weights hash
  std::uint64_t bytes = 0;
  std::optional<double> metric = {};
  bool last = false;  ///< the link of this name leads to it
  bool best = false;
  std::string fault;  ///< why nothing more is known of it; empty: nothing is wrong so far
};

/// newest_first(). UsageError when `folder` is none.
std::vector<Listed> list(const std::string& folder);

/// A table; a line that says so when there are none.
std::string list_as_text(const std::vector<Listed>& all);
std::string list_as_json(const std::vector<Listed>& all);

/// One checkpoint: its step, files, tensors with their bytes, and what state.json says.
std::string contents_as_text(const Manifest& manifest, const SavedState& state);
std::string contents_as_json(const Manifest& manifest, const SavedState& state);

}  // namespace lockstep::checkpoint
