#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/image.h"
#include "lockstep/data/inspect/report.h"

namespace lockstep::data {

struct InspectOptions {
  bool quick = false;  ///< read only the headers of picture files
  int threads = 0;     ///< that decode; 0: as many as cores may be used
};

/// What is said about a picture file.
struct PictureFacts {
  Size size;
  std::string kind;  ///< "" when the header could not be read
  std::uint64_t bytes = 0;
  std::string damage;  ///< "" when there is none
};

/// Looks at the picture files `paths`, in several threads; facts in the order of the paths. Without `quick`
/// each one is decoded as training would.
std::vector<PictureFacts> look_at_pictures(const std::vector<std::string>& paths, const InspectOptions& options);

}  // namespace lockstep::data
