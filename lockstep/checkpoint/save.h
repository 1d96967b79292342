#pragma once

// Checkpoints of a training loop of one's own.
//
//   lockstep::DistributedDataParallel ddp(model, world.group(), {.shards = 8});
//   ddp.state().keep("loader", loader.kept());
//   checkpoint::resume("checkpoints", ddp);            // before the optimizer is made
//   lockstep::optim::SGD optimizer(ddp, {.lr = 0.1});
//   for (auto epoch = loader.epoch(); epoch < epochs; ++epoch) {
//     ...
//     checkpoint::save("checkpoints", ddp, {.retention = {.keep = 3}});
//   }
//
// The job ends with the bits that it would have had without the interruption, also on another number of ranks. What is
// saved is the committed state: weights, module buffers, optimizer state, counts of updates, the average, kept bytes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/store/find.h"
#include "lockstep/checkpoint/store/kept_numbers.h"
#include "lockstep/checkpoint/store/retention.h"
#include "lockstep/parallel/engine.h"

namespace lockstep::checkpoint {

struct SaveOptions {
  std::string extra = "null";          ///< JSON of the user's own, which resume() gives back
  std::optional<double> metric = {};   ///< by which the link `best` and Retention::best choose; the larger the better
                                       ///< unless Retention::smaller_is_better
  Retention retention = {};            ///< which earlier checkpoints stay; all
  std::vector<KeptNumber> place = {};  ///< of kept bytes, which state.json shall tell by name: for a loader that is
                                       ///< kept as "loader" place_of("loader", data::DataLoader::place_in_kept())
};

struct Saved {
  std::string path;        ///< of the checkpoint, on rank 0
  std::string problem;     ///< why there is none; empty: there is, or this is another rank
  std::uint64_t step = 0;  ///< that it is of, on rank 0
};

/// Writes the committed state to `folder`/step-…, on rank 0; between steps. The other ranks return at once: they wait
/// in their next step, as long as the group's timeout lets them. Every rank may call it, none has to but rank 0; with
/// DataParallelOptions::zero1 over several nodes it is collective, for rank 0 gathers the optimizer's state, in memory
/// of its own until that is written.
///
/// What the system refuses (a full disk, a folder that is gone) is no failure of the job: it is told in one line on
/// stderr and as Saved::problem, the earlier checkpoints stay, and the next call tries again. UsageError on each rank
/// that calls, when no optimizer of ours is attached or `extra` is no JSON; on rank 0, of which the others get
/// GroupAborted, when another living program saves to the folder (store/folder_lock.h).
Saved save(const std::string& folder, parallel::Engine& engine, const SaveOptions& options = {});

/// Has the launcher save the last committed step to `folder` when the job ends without success for good: no worker is
/// left then that could. `lockstep run` and `lockstep train` do that, and tell it. Rank 0's call counts, the last one
/// of each model, to a folder of its own; between steps, once the optimizer is made: after a restart again. What is of
/// the time of the call: `options.extra`; a metric such a checkpoint has none. Returns whether the job has such a
/// launcher; under torchrun, mpirun and srun nothing is done and the state ends with the workers, and so with
/// DataParallelOptions::zero1 over several nodes, of which no agent has all of the state. UsageError as of save().
bool save_on_failure(const std::string& folder, parallel::Engine& engine, const SaveOptions& options = {});

struct Resumed {
  std::string path;              ///< of the checkpoint; empty: there is none, or the state was in memory
  std::uint64_t step = 0;        ///< of the checkpoint
  std::string extra = "null";    ///< SaveOptions::extra
  bool in_memory = false;        ///< an earlier attempt of this job has left its state: that is the newest
  std::vector<Skipped> skipped;  ///< newer ones that are damaged; each was told in one line on stderr
};

/// Has the state begin with a checkpoint (find(): "auto", "last", "best" or a path), once an optimizer of ours
/// attaches; before that. Collective. A state that an earlier attempt of the job has left in memory goes before: then
/// nothing is looked for. Numbers that count at a restart belong into EngineState::keep(), not into `extra`, which is
/// of the time of the save. UsageError on all ranks when what was asked for is not there, or is damaged. When the
/// optimizer attaches, UsageError on rank 0 with all differences where the checkpoint is of another model, optimizer
/// or seed, or keeps other bytes; the others then get GroupAborted. Another number of shards is told in one line.
Resumed resume(const std::string& folder, parallel::Engine& engine, const std::string& which = "auto");

/// The module's weights and buffers become those of a checkpoint (find()), the averaged ones with `average`; nothing
/// else changes: to evaluate the best one, or to begin another job with its weights. Collective, between steps; with an
/// optimizer of ours by modify(). Returns the checkpoint's path.
/// UsageError as of find(), and with all differences when it is of another model.
std::string load(const std::string& folder, parallel::Engine& engine, const std::string& which = "last",
                 bool average = false);

}  // namespace lockstep::checkpoint
