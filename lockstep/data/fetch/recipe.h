#pragma once

// What a well-known data set consists of, and where it can be downloaded.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

struct RemoteFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string sha256;  ///< lower-case hexadecimal
};

struct Recipe {
  std::string name;
  std::vector<std::string> mirrors;  ///< addresses of the folder with the files, ending in '/', tried in this order
  std::vector<RemoteFile> files;
  /// The one folder that the files, being .tar.gz archives, hold and are unpacked to; "": files are kept as they are.
  std::string unpacks_to;
};

/// mnist, fashion-mnist, cifar10, cifar100.
std::vector<std::string> recipe_names();

/// The set of that name. UsageError for another name.
const Recipe& find_recipe(const std::string& name);

/// The recipe with `mirror` as its only address. UsageError unless it is an http:// or https:// address
/// that libcurl takes.
Recipe with_mirror(Recipe recipe, const std::string& mirror);

}  // namespace lockstep::data
