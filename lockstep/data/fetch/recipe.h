#pragma once

// What a well-known data set consists of, and where it can be downloaded.

#include <string>
#include <vector>

#include "lockstep/data/sets/known_sets.h"

namespace lockstep::data {

struct Recipe {
  std::string name;
  std::vector<std::string> mirrors;  ///< addresses of the folder with the files, ending in '/', tried in this order
  std::vector<RemoteFile> files;
  /// The one folder that the files, being .tar.gz archives, hold and are unpacked to; "": files are kept as they are.
  std::string unpacks_to;
};

/// That of a known set. UsageError for a name that is not one of fetched_set_names().
Recipe find_recipe(const std::string& name);

/// The recipe with `mirror` as its only address. UsageError unless it is an http:// or https:// address
/// that libcurl takes.
Recipe with_mirror(Recipe recipe, const std::string& mirror);

}  // namespace lockstep::data
