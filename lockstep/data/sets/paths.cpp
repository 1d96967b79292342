#include "lockstep/data/sets/paths.h"

#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

fs::file_type type_of(const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  require_known(error, path);
  return type;
}

}  // namespace

bool is_there(const std::string& path) { return type_of(path) != fs::file_type::not_found; }

bool is_folder(const std::string& path) { return type_of(path) == fs::file_type::directory; }

bool is_file(const std::string& path) { return type_of(path) == fs::file_type::regular; }

void require_known(const std::error_code& error, const std::string& path) {
  const bool absent = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (error && !absent) throw UsageError("cannot look at '" + path + "': " + error.message());
}

}  // namespace lockstep::data
