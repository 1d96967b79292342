#include "lockstep/optim/optimizer.h"

#include <cmath>

namespace lockstep::optim {

void check(const StepOptions& options) {
  require(options.max_norm >= 0, "max_norm", options.max_norm, "at least 0 (0: no clipping)");
  require(options.norm_type > 0, "norm_type", options.norm_type, "more than 0; infinity for the largest magnitude");
  require(options.max_value >= 0, "max_value", options.max_value, "at least 0 (0: no clipping)");
  if (options.loss_scale)
    require(std::isfinite(options.loss_scale->scale) && options.loss_scale->scale > 0, "loss_scale",
            options.loss_scale->scale, "finite and above 0");
  if (options.denominator) require_not_negative("denominator", *options.denominator);
}

}  // namespace lockstep::optim
