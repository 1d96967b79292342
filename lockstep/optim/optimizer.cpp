#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

void check(const StepOptions& options) {
  require(options.max_norm >= 0, "max_norm", options.max_norm, "at least 0 (0: no clipping)");
}

}  // namespace lockstep::optim
