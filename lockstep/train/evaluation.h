#pragma once

// Evaluation in which every sample counts once, and whose numbers do not depend on the world:
// the set is cut into fixed chunks, ranks take chunks in turn, and the chunks' sums are added
// in chunk order on every rank.

#include "lockstep/comm/group.h"
#include "lockstep/data/dataset.h"
#include "lockstep/models/image_model.h"

namespace lockstep::train {

struct Evaluation {
  double loss = 0;  ///< mean cross entropy
  double top1 = 0;  ///< share of samples whose largest logit is the label's, 0..1
  std::int64_t samples = 0;
};

inline constexpr std::int64_t kEvaluationChunk = 500;

/// Collective. The model is put into evaluation mode for the call.
Evaluation evaluate(models::ImageModel& model, const data::ImageSet& set, comm::Group& group);

}  // namespace lockstep::train
