#pragma once

#include <string>
#include <vector>

#include "lockstep/data/fetch/sums_file.h"

namespace lockstep::data {

/// Unpacks a gzip-packed tar archive, all of whose entries are files and folders below its folder `top`, to
/// what becomes the folder `target`, with a SHA256SUMS in it. It is written aside, as `<target>.part`, brought
/// to disk and renamed: `target`, which must not exist, appears whole or not at all. What an earlier call left
/// aside is removed first. One at a time for a target.
///
/// UsageError naming archive and entry: a damaged archive; an entry that is anything but a file or a folder,
/// has an absolute name, "..", or is not below `top`. Owners, modes and times are not taken from the archive.
/// Error: the system refuses (disk full).
void unpack(const std::string& archive, const std::string& top, const std::string& target);

/// Why an entry with this name is not unpacked; "" when it may be. Of a link, device and so on the name does
/// not matter: it never is.
std::string entry_objection(const std::string& name, const std::string& top);

}  // namespace lockstep::data
