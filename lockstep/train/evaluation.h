#pragma once

// How good a classifier of images is (evaluation/evaluate.h): every sample counts once, and the numbers do not depend
// on the world.

#include <functional>
#include <memory>

#include "lockstep/comm/group.h"
#include "lockstep/data/batch.h"
#include "lockstep/evaluation/pass.h"
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

/// Pictures to logits.
using Forward = std::function<at::Tensor(const at::Tensor&)>;

/// Collective. Over `set`, which has at least one sample. `forward` runs `model`, which is put into evaluation mode for
/// the call.
Evaluation evaluate(torch::nn::Module& model, comm::Group& group, const std::shared_ptr<const data::Batches>& set,
                    const Forward& forward, const evaluation::PassOptions& pass = {});

}  // namespace lockstep::train
