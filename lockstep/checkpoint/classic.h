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
#include "lockstep/parallel/exponential_moving_average.h"

namespace torch::optim {
class Optimizer;  // its header takes ten seconds to compile
}

namespace lockstep::checkpoint {

/// Writes rank 0's weights, module buffers, optimizer state and kept bytes (EngineState::keep()) as the checkpoint of
/// `step`, which only the program knows, with what belongs to each rank: the state of torch's generator, and what the
/// communication hook remembers. Collective, between steps. As save() of a model with an optimizer of ours otherwise.
/// UsageError when it has one, and for an optimizer other than SGD, Adam, AdamW, RMSprop and Adagrad.
Saved save(const std::string& folder, parallel::Engine& engine, const torch::optim::Optimizer& optimizer,
           std::uint64_t step, const SaveOptions& options = {});

/// The same with an average of the model's weights. UsageError when it is of another module, or while it is shown.
Saved save(const std::string& folder, parallel::Engine& engine, const torch::optim::Optimizer& optimizer,
           const parallel::ExponentialMovingAverage& average, std::uint64_t step, const SaveOptions& options = {});

/// Weights, module buffers, optimizer state and kept bytes become those of a checkpoint (find()), on every rank, at
/// once; torch's generator and the registered communication hook go on from where they were on this rank. The options
/// of the optimizer, its rate among them, stay as they are. With another number of ranks the generator stays as the
/// program has seeded it and the hook's memory begins anew, and one line on stderr tells each. Collective, between
/// steps, behind register_comm_hook().
/// UsageError on all ranks as of find(), and naming the differences when the checkpoint is of another model, kind of
/// optimizer or seed, keeps other bytes, has an average, or when one rank alone cannot read its files. Another number
/// of shards or threads is told in one line.
Resumed resume(const std::string& folder, parallel::Engine& engine, torch::optim::Optimizer& optimizer,
               const std::string& which = "auto");

/// The same with the average, its count of updates included; its options stay as they are. UsageError, too, when the
/// checkpoint has none.
Resumed resume(const std::string& folder, parallel::Engine& engine, torch::optim::Optimizer& optimizer,
               parallel::ExponentialMovingAverage& average, const std::string& which = "auto");

}  // namespace lockstep::checkpoint
