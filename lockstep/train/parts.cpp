#include "lockstep/train/parts.h"

#include <filesystem>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/sets/paths.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

// "": it is not there. UsageError when that cannot be known: with another part in its place, this user or host would
// train or evaluate on other samples, and nobody would see it.
std::string found_part(const Options& options, const std::string& name, const std::string& ending) {
  const std::string part = (fs::path(options.data_path) / (name + ending)).string();
  if (ending.empty()) return data::is_folder(part) ? part : "";
  for (const char* packed : {"", ".gz"})
    if (data::is_file(part + packed)) return part + packed;
  return "";
}

}  // namespace

std::string train_part(const Options& options, const std::string& ending) {
  const std::string found = found_part(options, options.train_split, ending);
  // Who opens what is not there says so.
  return found.empty() ? (fs::path(options.data_path) / (options.train_split + ending)).string() : found;
}

std::string val_part(const Options& options, const std::string& ending) {
  // torchvision's reference trainer calls it val, the CIFAR folders test.
  const std::vector<std::string> names =
      options.val_split.empty() ? std::vector<std::string>{"val", "test"} : std::vector{options.val_split};
  std::vector<std::string> wanted;
  for (const std::string& name : names) {
    if (const std::string found = found_part(options, name, ending); !found.empty()) return found;
    wanted.push_back("'" + name + ending + "'");
  }
  throw UsageError(std::string(ending.empty() ? "no folder " : "no file ") + base::join(wanted, " or ") + " in '" +
                   options.data_path + "': " + (ending.empty() ? "pictures" : "samples") +
                   " to evaluate on, or --no-eval");
}

bool is_one_file(const Options& options) { return data::is_file(options.data_path); }

}  // namespace lockstep::train
