#include "lockstep/data/inspect/inspect.h"

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/inspect/kinds.h"
#include "lockstep/data/sets/paths.h"

namespace lockstep::data {

Report inspect(const std::string& path, const InspectOptions& options) {
  const std::string name = base::shown(path);
  if (!is_there(path)) throw UsageError("'" + name + "': " + std::strerror(ENOENT));
  if (!is_folder(path)) {
    if (std::optional<Report> report = inspect_file(path, options)) return *std::move(report);
    throw UsageError("'" + name + "' is no data file: JPEG, PNG, IDX (plain or .gz) or a CIFAR-10 batch expected");
  }
  for (const KnownSet& set : known_sets())
    if (std::optional<Report> report = inspect_known_set(set, path)) return *std::move(report);
  if (std::optional<Report> report = inspect_image_folder(path, options)) return *std::move(report);
  throw UsageError("'" + name +
                   "' holds no data set: class folders with .jpg or .png files, CIFAR's .bin files or MNIST's files "
                   "expected");
}

}  // namespace lockstep::data
