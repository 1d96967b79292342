#include "lockstep/amp/autocast.h"

#include <ATen/autocast_mode.h>

namespace lockstep::amp {

Autocast::Autocast(Amp amp)
    : enabled_before_(at::autocast::is_autocast_enabled(at::kCPU)),
      dtype_before_(at::autocast::get_autocast_dtype(at::kCPU)) {
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(at::kCPU, amp != Amp::none);
  at::autocast::set_autocast_dtype(at::kCPU, amp == Amp::fp16 ? at::kHalf : at::kBFloat16);
}

// With the outermost scope go the casts that autocast keeps for weights without a copy.
Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_dtype(at::kCPU, dtype_before_);
  at::autocast::set_autocast_enabled(at::kCPU, enabled_before_);
}

}  // namespace lockstep::amp
