#include "lockstep/checkpoint/store/find.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/aside_folder.h"
#include "lockstep/checkpoint/store/state_json.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/checkpoint/store/verify.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

// Why it cannot be used; empty: it can.
std::string fault_of(const std::string& path) {
  const std::vector<Damage> found = verify_pieces(path);
  if (found.empty()) return "";
  const std::string more = found.size() > 1 ? " (and " + std::to_string(found.size() - 1) + " more)" : "";
  return found.front().to_string() + more;
}

Found checked(const std::string& path) {
  if (const std::string fault = fault_of(path); !fault.empty())
    throw UsageError("checkpoint '" + base::shown(path) + "' is damaged: " + fault);
  return {.path = path, .step = read_manifest(path).step, .skipped = {}};
}

std::optional<Found> newest(const std::string& folder) {
  std::vector<Skipped> skipped;
  for (const std::uint64_t step : newest_first(steps_in(folder), linked_step(folder, kLastName))) {
    const std::string path = folder + "/" + step_name(step);
    std::string fault = fault_of(path);
    if (fault.empty()) return Found{path, step, std::move(skipped)};
    skipped.push_back({path, std::move(fault)});
  }
  if (skipped.empty()) return {};
  std::string text = "no checkpoint in '" + base::shown(folder) + "' is whole:";
  for (const Skipped& one : skipped) text += " " + one.why + ";";
  text.back() = '.';
  throw UsageError(text + " Name another folder, or remove them to begin anew");
}

// Python's checkpoints are files, and theirs is what is given most often in the place of ours.
const char* hint_for(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error)
             ? ", which is a file: one of Python's is none to go on from, its weights alone can be loaded (--weights)"
             : "";
}

Found must_be_there(std::optional<Found> found, const std::string& folder) {
  if (!found) throw UsageError("there is no checkpoint in '" + base::shown(folder) + "'");
  return std::move(*found);
}

}  // namespace

bool is_none(const std::string& path) {
  for (const char* name : {kManifestName, kStateName}) {
    std::error_code error;
    if (fs::exists(fs::path(path) / name, error)) return false;
    if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) return false;
  }
  return true;
}

std::optional<Found> find(const std::string& folder, const std::string& which) {
  if (which == "auto") return newest(folder);
  if (which == kLastName) return must_be_there(newest(folder), folder);
  if (which == kBestName) {
    put_back(folder);
    const auto step = linked_step(folder, kBestName);
    if (!step)
      throw UsageError("no checkpoint in '" + base::shown(folder) + "' is the best one: there is no link 'best'");
    return checked(folder + "/" + step_name(*step));
  }
  std::error_code error;
  put_back(fs::absolute(which, error).parent_path());
  if (!fs::exists(fs::path(which) / kManifestName, error) && !steps_in(which).empty())
    return must_be_there(newest(which), which);
  if (is_none(which)) throw UsageError("there is no checkpoint in '" + base::shown(which) + "'" + hint_for(which));
  return checked(which);
}

std::string checkpoints_below(const std::string& path) {
  std::error_code error;
  const std::string below = path + "/checkpoints";
  return fs::is_directory(below, error) ? below : path;
}

}  // namespace lockstep::checkpoint
