#pragma once

// A folder that appears under its name whole or not at all. Who makes it holds a lock on it, which ends with its
// process: so what a killed one has left is known from what somebody writes.

#include <string>

#include "lockstep/base/unique_fd.h"

namespace lockstep::checkpoint {

/// A name in `folder` that nobody else in this process or another takes: ".part-PID-N".
std::string aside_path(const std::string& folder);

/// Has the names in `folder` on disk. Error when the system refuses.
void sync_folder(const std::string& folder);

/// Not thread-safe; any number of them, in any processes.
class AsideFolder {
 public:
  /// Makes a folder of another name in `folder`. Error when the system refuses.
  explicit AsideFolder(std::string folder);
  /// Removes it, unless it has appeared.
  ~AsideFolder();
  AsideFolder(const AsideFolder&) = delete;
  AsideFolder& operator=(const AsideFolder&) = delete;

  const std::string& path() const { return path_; }

  /// Gives it its name, in the same folder, on disk when this returns. One that has this name already changes places
  /// with it in one instant and is removed. Where the file system cannot do that, it is called ".old-NAME" in between,
  /// from which put_back() makes it again what it was.
  void appear(const std::string& name);

 private:
  std::string folder_;
  std::string path_;  ///< of what the destructor removes
  base::UniqueFd lock_;
};

/// Removes `folder`/`name` and everything in it, from one instant to the next under this name. Error when the system
/// refuses.
void remove_folder(const std::string& folder, const std::string& name);

/// Gives its name back to what a killed process was about to replace in `folder`, unless the new one has it. Does what
/// it can.
void put_back(const std::string& folder);

/// The same, and removes what killed processes have left aside in `folder`. Does what it can.
void sweep(const std::string& folder);

}  // namespace lockstep::checkpoint
