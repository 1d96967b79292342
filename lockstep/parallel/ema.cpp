#include "lockstep/parallel/ema.h"

#include <algorithm>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

void check(const EmaOptions& options) {
  if (!(options.decay >= 0 && options.decay <= 1)) {
    std::ostringstream text;
    text << "data parallel: ema.decay is " << options.decay << ", must be in [0, 1]";
    throw UsageError(text.str());
  }
  if (options.interval == 0) throw UsageError("data parallel: ema.interval is 0, must be at least 1");
}

// With i the steps before this one, torchvision's `if i % model_ema_steps == 0: update_parameters()`, which copies as
// long as warm-up has set its count back.
optim::Averaging averaging_at(const EmaOptions& options, std::uint64_t step) {
  const std::uint64_t i = step - 1;
  const std::uint64_t epoch = options.steps_per_epoch;
  const std::uint64_t in_epoch = epoch > 0 ? i % epoch : i;
  if (in_epoch % options.interval != 0) return optim::Averaging::keep;
  if (i == 0) return optim::Averaging::copy;
  // The last one taken in: in this epoch, or at the end of the one before.
  const std::uint64_t back = in_epoch > 0 ? options.interval : (epoch - 1) % options.interval + 1;
  return i - back < options.warmup_steps ? optim::Averaging::copy : optim::Averaging::mean;
}

}  // namespace lockstep::parallel
