#pragma once

// Well-known data sets from the network into a folder.

#include <string>

#include "lockstep/data/fetch/download.h"
#include "lockstep/data/fetch/progress.h"
#include "lockstep/data/fetch/recipe.h"

namespace lockstep::data {

/// Downloads the files of `recipe` into `folder` (made when it is not there) and unpacks archives. True when
/// something was done, false when the whole set was there already: every checksum is computed to tell.
///
/// A file appears under its name when its size and SHA-256 are right, a folder when all of it is unpacked. What
/// was interrupted stays as `<name>.part`, and the next call goes on from there, at whatever mirror. A mirror
/// that breaks off is asked for the rest up to five times, then, as one that has no such file or another one,
/// left for the next. Several processes may fetch the same set: one does it, the others wait.
///
/// UsageError: the folder cannot be written; a file or folder of the set's name is there but is not it (nothing
/// is overwritten). Error: no mirror could give a file (one line with each one's reason), or the system refuses.
bool fetch(const Recipe& recipe, const std::string& folder, const Patience& patience, DownloadProgress& progress);

}  // namespace lockstep::data
