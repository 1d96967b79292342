#pragma once

// The folders of an ImageFolder, their pictures, and how to know later without reading them that they are the same.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

/// Tells one state of a folder from another. Adding, removing and renaming change both times, and the time of change
/// (ctime) cannot be set back as the time of modification can (by rsync, tar, touch).
struct FolderStamp {
  std::uint64_t inode = 0;
  std::int64_t modified_ns = 0;  ///< since 1970
  std::int64_t changed_ns = 0;

  bool operator==(const FolderStamp&) const = default;
};

struct IndexedFolder {
  std::string path;  ///< from the root on
  std::int64_t label = 0;
  FolderStamp stamp;                  ///< from before it was listed
  std::vector<std::string> pictures;  ///< names, sorted
  std::vector<std::string> links;     ///< names of links that led to no folder; they may, one day

  bool operator==(const IndexedFolder&) const = default;
};

struct FolderIndex {
  std::vector<std::string> classes;    ///< names, sorted; the place of a name is its label
  std::vector<IndexedFolder> folders;  ///< of the classes, in torchvision's order

  bool operator==(const FolderIndex&) const = default;
};

/// Lists everything below `root`. UsageError as of ImageFolder.
FolderIndex walk_folders(const std::string& root);

/// Whether walking `root` again would give `index`: its classes and the stamps of all folders are the same, and no link
/// leads to a folder. Costs a system call per folder and link, not per picture. Contents of files do not count.
/// UsageError, as of walk_folders, when it cannot be known where a link leads.
bool is_current(const FolderIndex& index, const std::string& root);

/// Whether the stamps of an index that was made from `now_ns` on (since 1970) can be trusted: none is younger than two
/// seconds. File systems count time in ticks (4 ms, 1 s, 2 s); what changes in the tick in which a folder was listed
/// would leave its stamp as it is.
bool is_settled(const FolderIndex& index, std::int64_t now_ns);

}  // namespace lockstep::data
