#include "lockstep/checkpoint/save.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/machine_lock.h"
#include "lockstep/base/member.h"
#include "lockstep/base/node.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/published_text.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/agree.h"
#include "lockstep/checkpoint/contents.h"
#include "lockstep/checkpoint/restore.h"
#include "lockstep/checkpoint/safetensors_file.h"
#include "lockstep/checkpoint/store/folder_lock.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/comm/network/wire.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/parallel/share_exchange.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::checkpoint {
namespace {

// Beside those of the job's other models.
std::vector<StatePlan> with(const StatePlan& plan, const std::string& published) {
  std::vector<StatePlan> plans = published.empty() ? std::vector<StatePlan>() : parse_plans(published);
  std::erase_if(plans, [&](const StatePlan& other) { return other.region == plan.region; });
  for (const StatePlan& other : plans)
    if (other.folder == plan.folder)
      throw UsageError("checkpoint: two models of the job save to '" + base::shown(plan.folder) +
                       "'; give each a folder of its own");
  plans.push_back(plan);
  return plans;
}

// Straight to where they belong, which is nobody's yet: until modify() commits it.
void read_into(torch::nn::Module& module, const std::string& path) {
  const SafetensorsFile file(path);
  const TensorMap tensors = state_dict(module);
  check_fits(tensors, file.described(), "'" + path + "'");
  file.read({tensors.begin(), tensors.end()});
}

}  // namespace

const state::SharedState& checked_state(parallel::Engine& engine, const SaveOptions& options) {
  const state::SharedState* const shared = engine.state().shared();
  if (shared == nullptr)
    throw UsageError(
        "checkpoint: a save of a model without an optimizer of lockstep::optim; one of torch::optim is "
        "given to save(), too");
  shared->check_settled("checkpoint");
  format_state({.extra = options.extra});  // on all ranks: each has the same error
  check_place(engine, options);
  return *shared;
}

Saved save(const std::string& folder, parallel::Engine& engine, const SaveOptions& options) {
  const state::SharedState& shared = checked_state(engine, options);
  const state::WholeArrays arrays = parallel::gather_arrays(shared, engine.group());
  if (engine.group().rank() != 0) return {};
  hold_or_abort(folder, engine.group());
  return written(folder, contents_of(engine, shared.read(0), options, arrays), options.retention);
}

void hold_or_abort(const std::string& folder, comm::Group& group) {
  // The others wait meanwhile, and are to hear why before they have waited too long.
  std::chrono::milliseconds patience = base::kLostMachine;
  if (const comm::Wire* const wire = group.wire()) patience = std::min(patience, wire->timeout() * 3 / 4);
  if (const base::Node* const node = group.shared_node()) patience = std::min(patience, node->member.timeout() * 3 / 4);
  comm::or_abort(group, [&] { hold_folder(folder, patience); });
}

Saved written(const std::string& folder, const Contents& contents, const Retention& retention) {
  try {
    return {.path = write_checkpoint(folder, contents, retention), .problem = "", .step = contents.state.step};
  } catch (const std::exception& error) {
    return not_saved(contents.state.step, error);
  }
}

Saved not_saved(std::uint64_t step, const std::exception& error) {
  base::tell(STDERR_FILENO, "lockstep: warning: no checkpoint of step " + std::to_string(step) + ": " +
                                base::shown(error.what()) + "; training goes on\n");
  return {.path = "", .problem = error.what(), .step = step};
}

bool save_on_failure(const std::string& folder, parallel::Engine& engine, const SaveOptions& options) {
  if (checked_state(engine, options).layout().options().shares > 1) return false;
  const base::Member& member = engine.group().node().member;
  // The segment is no agent's, or the group has one of its own (Group::new_group), which ends with the ranks.
  if (std::getenv("LOCKSTEP_SEGMENT") == nullptr || member.whole().page != nullptr) return false;
  if (engine.group().rank() != 0) return true;
  StatePlan plan = plan_of(engine, options);
  plan.folder = std::filesystem::absolute(folder).string();
  plan.constant.metric.reset();
  base::Segment& segment = engine.group().node().segment;
  base::publish(segment, format_plans(with(plan, base::published(segment))));
  return true;
}

Resumed resume(const std::string& folder, parallel::Engine& engine, const std::string& which) {
  if (engine.state().shared() != nullptr)
    throw UsageError("checkpoint: resume() after the optimizer was made; a state comes from a checkpoint before that");
  if (has_living_state(engine)) return {.in_memory = true};
  Resumed resumed = found_by_all(engine.group(), folder, which);
  if (resumed.path.empty()) return resumed;
  comm::Group& group = engine.group();
  std::string extra;  // the file is rank 0's, on its machine perhaps alone
  comm::or_abort(group, [&] {
    if (group.rank() == 0) extra = read_state(resumed.path).extra;
  });
  resumed.extra = comm::broadcast_bytes(group, extra);
  engine.state().start_from(
      [path = resumed.path, &engine](state::SharedState& fresh) { return restore(path, engine, fresh); });
  return resumed;
}

std::string load(const std::string& folder, parallel::Engine& engine, const std::string& which, bool average) {
  const Resumed found = found_by_all(engine.group(), folder, which);
  if (found.path.empty()) throw UsageError("there is no checkpoint in '" + base::shown(folder) + "'");
  const std::string file = found.path + "/" + (average ? kAverageName : kModelName);
  if (engine.state().shared() == nullptr)
    load_on_all(engine.group(), engine.module(), file);
  else
    engine.modify([&] { read_into(engine.module(), file); });
  return found.path;
}

}  // namespace lockstep::checkpoint
