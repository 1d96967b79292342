#include "lockstep/nn/fusible.h"

#include <ostream>

namespace lockstep::nn {

std::ostream& operator<<(std::ostream& stream, const Fusion& fusion) {
  return stream << fusion.name << ": " << fusion.from << " -> " << fusion.layer;
}

}  // namespace lockstep::nn
