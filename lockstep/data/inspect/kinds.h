#pragma once

// The kinds of set that inspect() knows. Each function gives the report, or nothing when `path` is no such set.

#include <optional>
#include <string>

#include "lockstep/data/inspect/pictures.h"
#include "lockstep/data/inspect/report.h"
#include "lockstep/data/picture_set.h"

namespace lockstep::data {

/// Counts the pictures of `set` into the part.
void add_pictures(const MemoryPictures& set, SetPart& part);

std::optional<Report> inspect_cifar10(const std::string& path);
std::optional<Report> inspect_cifar100(const std::string& path);
std::optional<Report> inspect_mnist(const std::string& path);
std::optional<Report> inspect_image_folder(const std::string& path, const InspectOptions& options);
std::optional<Report> inspect_file(const std::string& path, const InspectOptions& options);

}  // namespace lockstep::data
