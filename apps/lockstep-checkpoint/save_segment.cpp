#include "apps/lockstep-checkpoint/save_segment.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/published_text.h"
#include "lockstep/base/segment.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/folder_lock.h"
#include "lockstep/checkpoint/store/state_plan.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/checkpoint/store/write.h"
#include "lockstep/metrics/run_lock.h"

namespace lockstep::app {
namespace {

// The agent waits for this process, which a terminal that stands still must not hold up.
void tell(const std::string& what) { base::tell(STDERR_FILENO, "lockstep: " + what + "\n"); }

// Of the run directory that the folder is in, where there is one. The job's own ended with its workers: another job may
// have gone on there since, from an earlier step, and its checkpoints are not to be mixed with ours.
std::optional<metrics::RunLock> lock_of(const std::string& folder) {
  const std::filesystem::path run = std::filesystem::path(folder).parent_path();
  std::error_code ignored;
  if (!std::filesystem::exists(run / metrics::kRunLockName, ignored)) return {};
  return metrics::RunLock(run.string());
}

// What the checkpoint of that step says, where the program has made one of the same line of training: all numbers of
// the step are equal. Its tensors may be older, for an edit is a commit of the same step.
std::optional<checkpoint::SavedState> saved_itself(const std::string& folder, checkpoint::SavedState state) {
  try {
    const checkpoint::SavedState there = checkpoint::read_state(folder + "/" + checkpoint::step_name(state.step));
    state.metric = there.metric;
    state.extra = there.extra;
    if (checkpoint::format_state(there) == checkpoint::format_state(state)) return there;
  } catch (const Error&) {  // there is none, or it is damaged
  }
  return {};
}

// Whether there was nothing to save, or it is saved. One model's trouble is not the others'.
bool is_saved(const base::Segment& segment, const checkpoint::StatePlan& plan) {
  const base::RegionWords& words = base::region_words(segment.control(), plan.region);
  const std::optional<base::Commit> commit = base::committed(words);
  if (!commit || commit->step == 0) return true;
  const std::string step = "step " + std::to_string(commit->step);
  // The plan is of an earlier attempt, on one node, which had all of it, and elsewhere.
  if (words.shares.load() > 1) {
    tell(step +
         ", the last one that was committed, is not saved: nodes share out the optimizer's state, and this one has a "
         "part of it");
    return true;
  }
  try {
    const auto lock = lock_of(plan.folder);
    checkpoint::hold_folder(plan.folder, {});  // nobody comes again if this one is not saved
    const base::Extent place = segment.extent(base::state_area(plan.region));
    const base::Mapping region = segment.map(place.offset, place.bytes, base::Access::read_only);
    checkpoint::Contents contents = checkpoint::contents_at(plan, {region.data(), place.bytes}, *commit);
    if (const auto there = saved_itself(plan.folder, contents.state)) {
      // A job that went back to it and made no step has nothing to save; those behind it are to stay. Where `last`
      // leads to one before, or nowhere, the program died before it had linked its own.
      const std::optional<std::uint64_t> last = checkpoint::linked_step(plan.folder, checkpoint::kLastName);
      if (last && *last > commit->step) return true;
      contents.state.metric = there->metric;
      contents.state.extra = there->extra;
    }
    const std::string written = checkpoint::write_checkpoint(plan.folder, contents, plan.retention);
    tell(step + ", the last one that was committed, is saved in '" + base::shown(written) + "'");
    return true;
  } catch (const std::exception& error) {  // of the system, too, as when memory is short
    tell(step + ", the last one that was committed, is not saved: " + base::shown(error.what()));
    return false;
  }
}

}  // namespace

int save_segment(const std::string& path, const std::string& local_world) {
  const base::Segment segment = base::Segment::open(path, std::atoi(local_world.c_str()));
  const std::string text = base::published(segment);
  bool all = true;
  if (!text.empty())
    for (const checkpoint::StatePlan& plan : checkpoint::parse_plans(text)) all &= is_saved(segment, plan);
  return all ? kExitDone : kExitFailure;
}

}  // namespace lockstep::app
