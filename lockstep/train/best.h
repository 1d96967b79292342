#pragma once

// Checkpoints that are evaluated: the best one when the run is over (--eval-best), and one alone (--test-only
// --resume).

#include <optional>

#include "lockstep/comm/group.h"
#include "lockstep/train/fine_tuning.h"
#include "lockstep/train/input.h"

namespace lockstep::train {

/// Collective, when all checkpoints are written. Evaluates the weights of the checkpoint that
/// options.checkpoints.monitor has found the best, on `device`, on options.test_split where there is one, else on what
/// the run was evaluated on. Rank 0 reads the checkpoint, and compares it with its manifest first. Nothing when no
/// checkpoint was called the best. UsageError as of make_input() for the part, and on all ranks when the checkpoint is
/// damaged.
std::optional<EvalEvent> evaluate_best(const Options& options, const Input& input, comm::Group& group,
                                       const Additions& additions, at::Device device);

/// make_start_model(), of options.test_only with the weights of the checkpoint that options.checkpoints.resume leads
/// to: itself, or the newest of that folder or run (checkpoint::find()). Rank 0 reads it, and compares it with its
/// manifest first. Collective then. UsageError on all ranks when there is none, or it is damaged or of another model.
StartModel model_to_start(const Options& options, const models::ImageTask& task, const Additions& additions,
                          comm::Group& group);

/// The part of options.test_split in the place of what `input` is evaluated on; `input` itself where there is none.
Input with_test_split(const Options& options, const Input& input);

/// How `model` does on what the input is evaluated on, by the task of the options. `forward` runs it.
Evaluation evaluate_task(const Options& options, const Input& input, torch::nn::Module& model, comm::Group& group,
                         const Forward& forward);

}  // namespace lockstep::train
