#include "lockstep/checkpoint/store/write.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/aside_folder.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/checkpoint/store/verify.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

Manifest write_files(const std::string& path, const Contents& contents) {
  Manifest manifest{.step = contents.state.step};
  for (const TensorSet& set : contents.files) {
    manifest.files.push_back(write_tensors(path + "/" + set.file, set.tensors));
    if (set.file == kModelName) manifest.weights = weights_hash(set.tensors, manifest.files.back());
  }
  manifest.files.push_back(write_text(path + "/" + kStateName, format_state(contents.state)));
  write_text(path + "/" + kManifestName, format_manifest(manifest));
  return manifest;
}

// A disk that takes bytes and gives back others is found out while the last checkpoint is there still.
void read_back(const std::string& path, const Manifest& manifest) {
  const std::vector<Damage> found = verify(path, /*from_disk=*/true);
  if (!found.empty()) throw Error("what was written reads back otherwise: " + found.front().to_string());
  if (read_manifest(path) != manifest) throw Error("what was written reads back otherwise: '" + path + "/MANIFEST'");
}

void warn(const std::string& what) {
  base::tell(STDERR_FILENO, "lockstep: warning: of the checkpoints before: " + base::shown(what) + "\n");
}

// The new one is there already: what goes wrong with those before is no failure of its.
template <class Body>
void or_warn(Body&& body) {
  try {
    body();
  } catch (const std::exception& error) {
    warn(error.what());
  }
}

std::vector<Stored> stored_in(const std::string& folder, std::uint64_t good) {
  std::vector<Stored> all;
  for (const std::uint64_t step : steps_in(folder)) {
    Stored& stored = all.emplace_back(Stored{.step = step, .good = step == good});
    try {
      stored.metric = read_state(folder + "/" + step_name(step)).metric;
    } catch (const Error& error) {  // a disk that hesitates, or a file that is damaged
      stored.is_readable = false;
      warn(std::string(error.what()) + "; it is kept");
    }
  }
  return all;
}

void tidy(const std::string& folder, std::uint64_t step, const Retention& retention) {
  const std::vector<Stored> all = stored_in(folder, step);
  const auto best = best_of(all, retention.smaller_is_better);
  if (best && linked_step(folder, kBestName) != best) link_step(folder, kBestName, *best);
  for (const std::uint64_t gone : surplus(all, retention))
    if (gone != best) or_warn([&] { remove_folder(folder, step_name(gone)); });
}

}  // namespace

std::string write_checkpoint(const std::string& folder, const Contents& contents, const Retention& retention) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error("making the folder '" + folder + "': " + error.message());
  sweep(folder);
  const std::uint64_t step = contents.state.step;
  {
    AsideFolder aside(folder);
    read_back(aside.path(), write_files(aside.path(), contents));
    aside.appear(step_name(step));
  }
  link_step(folder, kLastName, step);
  or_warn([&] { tidy(folder, step, retention); });
  return folder + "/" + step_name(step);
}

}  // namespace lockstep::checkpoint
