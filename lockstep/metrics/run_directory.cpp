#include "lockstep/metrics/run_directory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/metrics/mistakes_file.h"
#include "lockstep/metrics/tensorboard.h"

namespace lockstep::metrics {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "config.json";
constexpr const char* kOwnerName = "run.id";  // two lines: the id, the attempt

enum class Use { unused, ours, foreign };

bool marks_use(std::string_view name) { return name == kConfigName || name == "metrics.jsonl"; }

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw UsageError("output directory '" + path + "': " + why);
}

Coming coming_of(const RunClaim& claim) { return claim.attempt > 0 || claim.held ? Coming::again : Coming::first; }

void make_folder(const std::string& path, Coming coming) {
  if (path.empty()) refuse(path, "is empty; name a folder");
  std::error_code error;
  fs::create_directories(path, error);
  if (error) refuse_folder(path, coming, error.message());
  if (!fs::is_directory(path, error)) refuse(path, "is not a directory");
}

std::string config_in(const fs::path& path) {
  std::ifstream file(path / kConfigName, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// An id may come again by the user's choice (--rdzv-id) or without one (a shell that sets RANK itself); an attempt of
// one job does not.
bool is_ours(const fs::path& path, const RunClaim& claim) {
  std::ifstream file(path / kOwnerName);
  std::string run_id;
  int attempt = 0;
  return std::getline(file, run_id) && file >> attempt && run_id == claim.run_id && attempt < claim.attempt;
}

Use use_of(const std::string& path, std::string_view config_json, const RunClaim& claim) {
  std::error_code ignored;
  const fs::path folder(path);
  if (!fs::exists(folder / kConfigName, ignored) && !fs::exists(folder / "metrics.jsonl", ignored)) return Use::unused;
  if (claim.held) return Use::ours;
  if (is_ours(folder, claim)) {
    if (!claim.goes_on(config_in(folder), config_json))
      refuse(path, "this job began there with another configuration, so that it cannot go on in it");
    return Use::ours;
  }
  if (!claim.overwrite) refuse(path, "already holds a run; choose another or give --overwrite to replace it");
  return Use::foreign;
}

// What marks the folder as used goes last: whoever dies on the way leaves a folder that still is.
void remove_run_files(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    if (is_run_file(entry->path().filename().string())) names.push_back(entry->path().filename().string());
  if (error) refuse(path, error.message());
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return !marks_use(name); });
  for (const std::string& name : names) {
    if (fs::is_directory(fs::path(path) / name, error)) continue;
    if (!fs::remove(fs::path(path) / name, error) && error)
      refuse(path, "cannot remove " + name + ": " + error.message());
  }
}

void write(base::AtomicFile& file, std::string_view text) { file.write(text.data(), text.size()); }

// Both are written aside before anything is removed. The id comes first: a death behind it leaves a folder that is
// this run's or unused.
void write_files(const std::string& path, std::string_view config_json, const RunClaim& claim, Use use) {
  try {
    base::AtomicFile owner(path + "/" + kOwnerName), config(path + "/" + kConfigName);
    write(owner, claim.run_id + "\n" + std::to_string(claim.attempt) + "\n");
    write(config, config_json);
    if (use == Use::foreign) remove_run_files(path);
    owner.commit();
    config.commit();
  } catch (const UsageError& error) {
    if (coming_of(claim) == Coming::first) throw;
    throw Error(error.what());
  } catch (const Error& error) {
    refuse_folder(path, coming_of(claim), std::string("cannot be written (") + error.what() + ")");
  }
}

}  // namespace

bool is_run_file(std::string_view name) {
  return name == kConfigName || name == kOwnerName || name == "metrics.jsonl" || name == "metrics.csv" ||
         name == kMistakesName || is_tensorboard_file_name(name);
}

std::shared_ptr<RunLock> lock_used(const std::string& path, std::chrono::milliseconds patience) {
  const auto has = [&](const char* name) {
    std::error_code ignored;
    return fs::exists(fs::path(path) / name, ignored);
  };
  if (!has(kConfigName) && !has("metrics.jsonl") && !has(kRunLockName) && !has("checkpoints")) return nullptr;
  return std::make_shared<RunLock>(path, Coming::again, patience);
}

std::string RunDirectory::mistakes_json() const { return path_ + "/" + kMistakesName; }

RunDirectory RunDirectory::create(const std::string& path, std::string_view config_json, const RunClaim& claim) {
  make_folder(path, coming_of(claim));
  use_of(path, config_json, claim);  // a folder that is refused gets no lock's file
  auto lock = claim.held ? claim.held : std::make_shared<RunLock>(path, coming_of(claim), claim.patience);
  write_files(path, config_json, claim, use_of(path, config_json, claim));
  return {path, std::move(lock)};
}

}  // namespace lockstep::metrics
