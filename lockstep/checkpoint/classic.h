#pragma once

// Checkpoints of training with an optimizer of torch::optim, where each rank has weights and optimizer state of its
// own.
//
//   torch::optim::Adam optimizer(model->parameters(), 1e-3);
//   std::uint64_t step = checkpoint::resume("checkpoints", ddp, optimizer).step;
//   while (step < steps) {
//     ...
//     optimizer.step();
//     if (++step % 1000 == 0) checkpoint::save("checkpoints", ddp, optimizer, step);
//   }
//
// There is no state in shared memory: the launcher cannot save when all workers are dead, and a restart without a
// checkpoint begins anew.

#include <cstdint>
#include <string>

#include "lockstep/checkpoint/save.h"

namespace torch::optim {
class Optimizer;  // its header takes ten seconds to compile
}

namespace lockstep::checkpoint {

/// Writes rank 0's weights, module buffers, optimizer state and kept bytes (EngineState::keep()) as the checkpoint of
/// `step`, which only the program knows. As save() of a model with an optimizer of ours otherwise.
/// UsageError when it has one, and for an optimizer other than SGD, Adam, AdamW, RMSprop and Adagrad.
Saved save(const std::string& folder, parallel::Engine& engine, const torch::optim::Optimizer& optimizer,
           std::uint64_t step, const SaveOptions& options = {});

/// Weights, module buffers, optimizer state and kept bytes become those of a checkpoint (find()), on every rank, at
/// once. The options of the optimizer, its rate among them, stay as they are. Collective, between steps.
/// UsageError on all ranks as of find(), and naming the differences when the checkpoint is of another model, kind of
/// optimizer, or keeps other bytes.
Resumed resume(const std::string& folder, parallel::Engine& engine, torch::optim::Optimizer& optimizer,
               const std::string& which = "auto");

}  // namespace lockstep::checkpoint
