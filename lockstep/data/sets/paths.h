#pragma once

// What stands at a path. Only "does not exist" is a no: a class folder that cannot be looked at is not a missing one,
// for the labels of the others would move, on this host or for this user alone.

#include <string>
#include <system_error>

namespace lockstep::data {

/// Whether there is something at `path`; a link counts as what it leads to. UsageError naming path and reason when that
/// cannot be known: no permission, links in a circle, a disk that fails.
bool is_there(const std::string& path);

/// The same for a folder.
bool is_folder(const std::string& path);

/// The same for a regular file.
bool is_file(const std::string& path);

/// UsageError naming `path` and the error, unless that says that there is nothing.
void require_known(const std::error_code& error, const std::string& path);

}  // namespace lockstep::data
