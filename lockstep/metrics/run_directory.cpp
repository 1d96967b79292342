#include "lockstep/metrics/run_directory.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/metrics/line_file.h"
#include "lockstep/metrics/tensorboard.h"

namespace lockstep::metrics {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "config.json";
constexpr const char* kAsideName = "config.json.new";  // becomes config.json by renaming

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw UsageError("output directory '" + path + "': " + why);
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) refuse(path, error.message());
  if (!fs::is_directory(path, error)) refuse(path, "is not a directory");
}

bool is_used(const fs::path& path) {
  std::error_code error;
  return fs::exists(path / kConfigName, error) || fs::exists(path / "metrics.jsonl", error);
}

bool holds(const fs::path& path, std::string_view config_json) {
  std::ifstream file(path / kConfigName, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {}) == config_json;
}

/// Also the proof that files can be made here, before any is removed.
void write_aside(const std::string& path, std::string_view text) {
  const fs::path aside = fs::path(path) / kAsideName;
  try {
    std::error_code error;
    fs::remove(aside, error);
    LineFile(aside.string()).append(text);
  } catch (const Error& error) {
    std::error_code ignored;
    fs::remove(aside, ignored);
    refuse(path, std::string("cannot be written (") + error.what() + ")");
  }
}

void remove_run_files(const std::string& path) {
  std::error_code error;
  fs::directory_iterator entries(path, error);
  if (error) refuse(path, error.message());
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (name == kAsideName || !is_run_file(name) || entry.is_directory(error)) continue;
    if (!fs::remove(entry.path(), error) && error) refuse(path, "cannot remove " + name + ": " + error.message());
  }
}

}  // namespace

bool is_run_file(std::string_view name) {
  return name == kConfigName || name == kAsideName || name == "metrics.jsonl" || name == "metrics.csv" ||
         is_tensorboard_file_name(name);
}

RunDirectory RunDirectory::create(const std::string& path, std::string_view config_json, IfUsed if_used) {
  if (path.empty()) refuse(path, "is empty; name a folder");
  make_folder(path);
  if (if_used == IfUsed::refuse && is_used(path))
    refuse(path, "already holds a run; choose another or give --overwrite to replace it");
  if (if_used == IfUsed::go_on && is_used(path)) {
    if (!holds(path, config_json)) refuse(path, "holds a run of another configuration; this job cannot go on in it");
    return RunDirectory(path);
  }
  write_aside(path, config_json);
  if (if_used == IfUsed::overwrite) remove_run_files(path);
  std::error_code error;
  fs::rename(fs::path(path) / kAsideName, fs::path(path) / kConfigName, error);
  if (error) refuse(path, "cannot be written (config.json: " + error.message() + ")");
  return RunDirectory(path);
}

}  // namespace lockstep::metrics
