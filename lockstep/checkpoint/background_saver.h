#pragma once

// Saves while training goes on.
//
//   checkpoint::BackgroundSaver saver("checkpoints", ddp, {.keep = 3});   // before the optimizer is made
//   checkpoint::resume("checkpoints", ddp);
//   lockstep::optim::SGD optimizer(ddp, {.lr = 0.1});
//   ...
//   if (ddp.steps() % 1000 == 0) saver.save();                            // returns at once

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/checkpoint/save.h"

namespace lockstep::checkpoint {

/// The nice value of the thread that saves: where all cores train, a save lasts longer and no step does.
inline constexpr int kNiceOfSaves = 19;

/// When a BackgroundSaver has no other program save to its folder (store/folder_lock.h).
enum class Hold {
  now,            ///< before anything is chosen there
  at_first_save,  ///< for who keeps others away himself until then
};

/// Of one model, on all ranks; rank 0 saves, in one thread of its own, reading back included. Used by the thread that
/// trains.
///
/// The state has a third buffer. A save holds the committed one, which no step writes as long as it is held, so nothing
/// is copied and nobody waits: the price is that memory, one state per node. With DataParallelOptions::zero1 over
/// several nodes save() is collective, and the others send rank 0 their shares of the optimizer's state, which it holds
/// in memory of its own until they are written.
class BackgroundSaver {
 public:
  /// Before resume(), so that no other program saves there between the choice of a checkpoint and the first save.
  /// UsageError once an optimizer is attached; on rank 0, of which the others get GroupAborted, when another living
  /// program saves to the folder.
  BackgroundSaver(std::string folder, parallel::Engine& engine, const Retention& retention = {}, Hold hold = Hold::now);
  /// Waits for a save that runs.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  /// Begins to save the committed state, as checkpoint::save() would, whose `retention` is not asked here. While an
  /// earlier save runs it does nothing but count. Returns whether it began, on rank 0; true on the others.
  /// UsageError as checkpoint::save(); where the folder was made anew and is another program's it comes from the next
  /// call, of this, wait() or ended(), for files are looked at in the thread alone. `awaited`: nothing is trained until
  /// it has ended, as behind the last step, so it keeps the nice value.
  bool save(const SaveOptions& options = {}, bool awaited = false);

  /// Waits for a save that runs; returns how the last one ended, on rank 0. Before the program ends, or reads the
  /// files.
  Saved wait();

  /// The same on all ranks, which wait in turns, each of them a small collective: how long a save takes is no failure
  /// then, and within the group's timeout each rank hears of one that has failed, died or does not come. Collective.
  /// How long the disk may take for it has no limit.
  Saved wait_together();

  /// As wait(), for so long at most: whether none runs any more. The other ranks wait meanwhile.
  bool wait_for(std::chrono::milliseconds most);

  /// How the last save that has ended did so, once and without waiting; nothing when that was told already.
  std::optional<Saved> ended();

  /// Saves that did not begin since another one ran.
  std::uint64_t skipped() const { return skipped_; }

 private:
  struct Run;

  std::exception_ptr join();

  const std::string folder_;
  parallel::Engine& engine_;
  const Retention retention_;
  std::uint64_t skipped_ = 0;
  Saved last_;
  bool untold_ = false;  ///< last_, by ended()
  std::unique_ptr<Run> run_;
};

}  // namespace lockstep::checkpoint
