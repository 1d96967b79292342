#pragma once

// Which checkpoint a job goes on from.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

/// A checkpoint that was passed over, and why.
struct Skipped {
  std::string path;
  std::string why;
};

struct Found {
  std::string path;
  std::uint64_t step = 0;
  std::vector<Skipped> skipped;
};

/// `which`:
///   "auto"   the newest checkpoint in `folder` that verifies; nothing when there is none at all
///   "last"   the same, and there must be one
///   "best"   the one to which the link `best` leads
///   a path   that checkpoint, or the newest one of that folder
/// The newest is the one to which the link `last` leads; then newest_first() says (step_folders.h).
/// UsageError naming what was looked for and the first fault of each when there are checkpoints and none verifies, so
/// that a job never begins anew where it could have gone on. Reads all of them that it tries. Any thread.
std::optional<Found> find(const std::string& folder, const std::string& which = "auto");

/// Whether there is nothing of a checkpoint in `path`, not one that has lost a file or cannot be looked at.
bool is_none(const std::string& path);

/// `path`, or the folder `checkpoints` in it where there is one: a run's directory may be given in its place.
std::string checkpoints_below(const std::string& path);

}  // namespace lockstep::checkpoint
