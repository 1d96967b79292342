#include "apps/lockstep-checkpoint/save_segment.h"

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/published_text.h"
#include "lockstep/base/segment.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/state_plan.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/checkpoint/store/write.h"

namespace lockstep::app {
namespace {

void tell(const std::string& what) { std::fputs(("lockstep: " + what + "\n").c_str(), stderr); }

// Of the same step, and what `state.json` says of it is the same: the program has saved it itself, perhaps with a
// metric, which is to stay.
bool is_saved(const std::string& folder, checkpoint::SavedState state) {
  try {
    checkpoint::SavedState there = checkpoint::read_state(folder + "/" + checkpoint::step_name(state.step));
    there.metric.reset();
    there.extra = state.extra;
    return checkpoint::format_state(there) == checkpoint::format_state(state);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

int save_segment(const std::string& path, const std::string& local_world) {
  const base::Segment segment = base::Segment::open(path, std::atoi(local_world.c_str()));
  const std::string text = base::published(segment);
  if (text.empty()) return kExitDone;
  const checkpoint::StatePlan plan = checkpoint::parse_plan(text);
  const std::optional<base::Commit> commit = base::committed(base::region_words(segment.control(), plan.region));
  if (!commit || commit->step == 0) return kExitDone;
  const std::string step = "step " + std::to_string(commit->step);
  const base::Extent place = segment.extent(base::state_area(plan.region));
  const base::Mapping region = segment.map(place.offset, place.bytes, base::Access::read_only);
  const checkpoint::Contents contents = checkpoint::contents_at(plan, {region.data(), place.bytes}, *commit);
  if (is_saved(plan.folder, contents.state)) return kExitDone;
  try {
    const std::string written = checkpoint::write_checkpoint(plan.folder, contents, plan.retention);
    tell(step + ", the last one that was committed, is saved in '" + base::shown(written) + "'");
    return kExitDone;
  } catch (const Error& error) {
    tell(step + ", the last one that was committed, is not saved: " + base::shown(error.what()));
    return kExitFailure;
  }
}

}  // namespace lockstep::app
