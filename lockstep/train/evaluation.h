#pragma once

// How good a classifier of images is (evaluation/evaluate.h): every sample counts once, and the numbers do not depend
// on the world.

#include <functional>
#include <memory>

#include "lockstep/comm/group.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/loader.h"
#include "lockstep/models/image_model.h"

namespace lockstep::train {

struct Evaluation {
  double loss = 0;  ///< mean cross entropy
  double top1 = 0;  ///< share of samples whose largest logit is the label's, 0..1
  std::int64_t samples = 0;
};

/// Samples per chunk for pictures of `task`: 500, fewer of large ones, at least 1; a function of the
/// pictures alone, since chunks decide the order of addition.
std::int64_t evaluation_chunk(const models::ImageTask& task);

/// What is evaluated on, and how it is read.
struct EvaluationInput {
  std::shared_ptr<const data::Batches> set;  ///< at least one sample
  std::int64_t chunk = 500;
  data::LoaderOptions loader = {};
};

/// Pictures to logits.
using Forward = std::function<at::Tensor(const at::Tensor&)>;

/// Collective. `forward` runs `model`, which is put into evaluation mode for the call.
Evaluation evaluate(torch::nn::Module& model, const Forward& forward, const EvaluationInput& input, comm::Group& group);

}  // namespace lockstep::train
