#pragma once

// How good a model is (evaluation/evaluate.h): every sample counts once, and the numbers do not depend on the world.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/group.h"
#include "lockstep/data/batch.h"
#include "lockstep/evaluation/pass.h"
#include "lockstep/models/image_model.h"
#include "lockstep/train/answers.h"

namespace lockstep::train {

/// How far a regression is off.
struct Errors {
  double mae = 0;  ///< mean of the absolute errors, over all targets
  double r2 = 0;   ///< 1 - squared errors / squares about the mean, the mean over the targets; not a number where all
                   ///< samples have the same target
};

struct Evaluation {
  double loss = 0;  ///< mean cross entropy, or loss of the regression
  double top1 = 0;  ///< share of samples whose largest logit is the label's, 0..1; of a classifier
  double top5 = 0;  ///< share of those whose label is among the 5 largest logits; 1 where there are no more classes
  std::int64_t samples = 0;
  std::optional<Errors> errors = {};    ///< of a regression
  std::optional<Answers> answers = {};  ///< of a classifier
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

/// Collective. The same for a regression by `loss`, "mse", "l1" or "smooth_l1": targets float [B, targets]. UsageError
/// when the outputs have another shape than the targets.
Evaluation evaluate_errors(torch::nn::Module& model, comm::Group& group,
                           const std::shared_ptr<const data::Batches>& set, const Forward& forward,
                           const std::string& loss, const evaluation::PassOptions& pass = {});

}  // namespace lockstep::train
