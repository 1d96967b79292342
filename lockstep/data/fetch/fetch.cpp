#include "lockstep/data/fetch/fetch.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/fetch/sha256.h"
#include "lockstep/data/fetch/sums_file.h"
#include "lockstep/data/fetch/unpack.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr int kAttempts = 5;

std::string sum_objection(const std::string& path, const RemoteFile& file) {
  const std::string sum = sha256_of_file(path);
  return sum == file.sha256 ? "" : "SHA-256 " + sum + ", " + file.sha256 + " expected";
}

// "" when `part` is whole and right, else the reason why this address is given up.
std::string complete_from(const std::string& url, PartFile& part, const RemoteFile& file, const Patience& patience,
                          DownloadProgress& progress) {
  std::string reason;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t before = part.size();
    if (before < file.bytes) progress.begin(file.name, url, before, file.bytes);
    const Outcome outcome =
        download(url, part, file.bytes, patience, [&](std::uint64_t done) { progress.advance(done); });
    if (outcome.kind == Outcome::whole) {
      reason = sum_objection(part.path(), file);
      if (reason.empty()) return "";
      part.restart();
    } else {
      reason = outcome.reason;
    }
    // Worth asking again: a rest that a broken transfer left, or all of it, when what was kept did not fit.
    const bool more_came = outcome.kind == Outcome::broken && part.size() > before;
    const bool begun_anew = before > 0 && part.size() == 0;
    if (!more_came && !begun_anew) return reason;
  }
  return reason;
}

void complete(PartFile& part, const RemoteFile& file, const std::vector<std::string>& mirrors, const Patience& patience,
              DownloadProgress& progress) {
  if (part.size() > file.bytes) part.restart();
  std::vector<std::string> reasons;
  for (const std::string& mirror : mirrors) {
    const std::string reason = complete_from(mirror + file.name, part, file, patience, progress);
    if (reason.empty()) return;
    reasons.push_back(mirror + file.name + ": " + base::shown(reason));
  }
  const std::string kept = part.size() > 0 ? "; " + std::to_string(part.size()) + " bytes are kept in '" +
                                                 base::shown(part.path()) + "', the next fetch goes on from there"
                                           : "";
  throw Error("cannot download " + base::join(reasons, "; ") + kept);
}

// Whether the target is there, whole. UsageError when something else has its name.
bool is_there(const fs::path& target, const Recipe& recipe, const RemoteFile& file) {
  if (!fs::exists(fs::symlink_status(target))) return false;
  const bool archive = !recipe.unpacks_to.empty();
  const bool right_kind = archive ? fs::is_directory(target) : fs::is_regular_file(target);
  const std::string objection = !right_kind ? (archive ? "not a folder" : "not a file")
                                : archive   ? sums_objection(target)
                                            : sum_objection(target, file);
  if (objection.empty()) return true;
  throw UsageError("'" + base::shown(target.string()) + "' is there but is not what " + recipe.name +
                   " needs: " + objection + ": move it away or choose another folder");
}

bool fetch_file(const Recipe& recipe, const RemoteFile& file, const std::string& folder, const Patience& patience,
                DownloadProgress& progress) {
  const fs::path target = fs::path(folder) / (recipe.unpacks_to.empty() ? file.name : recipe.unpacks_to);
  if (is_there(target, recipe, file)) return false;
  PartFile part((fs::path(folder) / file.name).string(), patience.lock);
  if (is_there(target, recipe, file)) {  // another process has brought it meanwhile
    part.remove();
    return false;
  }
  complete(part, file, recipe.mirrors, patience, progress);
  if (recipe.unpacks_to.empty()) {
    part.become_target();
  } else {
    progress.say(file.name + ": unpacking");
    unpack(part.path(), recipe.unpacks_to, target.string());
    part.remove();
  }
  return true;
}

}  // namespace

bool fetch(const Recipe& recipe, const std::string& folder, const Patience& patience, DownloadProgress& progress) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UsageError("cannot make the folder '" + base::shown(folder) + "': " + error.message());
  bool done = false;
  for (const RemoteFile& file : recipe.files) done = fetch_file(recipe, file, folder, patience, progress) || done;
  return done;
}

}  // namespace lockstep::data
