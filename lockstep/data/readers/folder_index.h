#pragma once

// The index of an ImageFolder's folders as a file.

#include <cstdint>
#include <string>

#include "lockstep/data/readers/folder_walk.h"

namespace lockstep::data {

/// The index as the bytes of a file.
std::string encode(const FolderIndex& index);

/// The other way round. UsageError naming `file` when they are damaged.
FolderIndex decode_index(const std::string& bytes, const std::string& file);

/// The index that the file `cache` has of `root`, when it is current; else that of a walk, which is then written to
/// `cache`, if it is settled at the time `now_ns`. A damaged file is replaced, with a line on stderr. Any number of
/// processes may do so at the same time. UsageError as of walk_folders, and when `cache` cannot be read or written, or
/// lies in a class folder, which it would change each time.
FolderIndex cached_index(const std::string& root, const std::string& cache, std::int64_t now_ns);

}  // namespace lockstep::data
