#pragma once

#include <string>
#include <vector>

namespace lockstep::testing {

struct TarEntry {
  std::string name;
  std::string content;
  std::string symlink;   ///< what it leads to, when it is one
  std::string hardlink;  ///< the same
  bool folder = false;
};

/// The bytes of a .tar.gz.
std::string tar_gz(const std::vector<TarEntry>& entries);

}  // namespace lockstep::testing
