#pragma once

// Layers of one's own at the end of a built-in model.

#include <string>

#include "lockstep/models/image_model.h"

namespace lockstep::train {

/// Puts the layers of `text` (options_head.h) in the place of the model's last one, as a Sequential of its name: "fc"
/// becomes fc.0, fc.1, … Their weights are drawn from torch's default generator. UsageError when they end in another
/// number than `classes`.
void replace_head(models::ImageModel& model, const std::string& text, std::int64_t classes);

}  // namespace lockstep::train
