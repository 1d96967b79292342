#pragma once

// The kinds of set that inspect() knows. Each function gives the report, or nothing when `path` is no such set.

#include <optional>
#include <string>

#include "lockstep/data/inspect/pictures.h"
#include "lockstep/data/inspect/report.h"
#include "lockstep/data/picture_set.h"
#include "lockstep/data/sets/known_sets.h"

namespace lockstep::data {

/// Counts the pictures of `set` into the part.
void add_pictures(const MemoryPictures& set, SetPart& part);

/// By its readers; nothing too when the row has no word for what is found.
std::optional<Report> inspect_known_set(const KnownSet& set, const std::string& path);
std::optional<Report> inspect_image_folder(const std::string& path, const InspectOptions& options);
std::optional<Report> inspect_file(const std::string& path, const InspectOptions& options);

}  // namespace lockstep::data
