#include "lockstep/parallel/join.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/uneven_inputs.h"

namespace lockstep::parallel {
namespace {

// A group that somebody else owns.
std::shared_ptr<comm::Group> borrowed(comm::Group& group) { return {std::shared_ptr<void>(), &group}; }

}  // namespace

std::optional<int> notify_join_context(const Joinable& joinable) {
  UnevenInputs* const inputs = UnevenInputs::of(joinable.join_process_group());
  if (inputs == nullptr) return {};
  const std::vector<Joinable*>& all = inputs->options().joinables;
  const auto found = std::find(all.begin(), all.end(), &joinable);
  if (found == all.end())
    throw UsageError(
        "join: collectives of a Joinable that the join() was not given: ranks without inputs would not take part; add "
        "it to JoinOptions::joinables");
  inputs->announce(UnevenInputs::Pass::joinable, found - all.begin());
  return inputs->source();
}

Join::Join(Engine& ddp, std::vector<Joinable*> joinables, JoinOptions options)
    : ddp_(&ddp), options_(std::move(options)) {
  options_.joinables = std::move(joinables);
}

Join::Join(std::vector<Joinable*> joinables, JoinOptions options) : options_(std::move(options)) {
  if (joinables.empty()) throw UsageError("Join: no joinables were given");
  options_.joinables = std::move(joinables);
}

void Join::run(const std::function<void()>& loop) {
  if (ddp_ != nullptr) return ddp_->join(loop, options_);
  UnevenInputs inputs(borrowed(options_.joinables.front()->join_process_group()), options_, nullptr);
  inputs.run(loop);
  comm::or_abort(options_.joinables.front()->join_process_group(), [&] {
    if (inputs.follow() != UnevenInputs::Pass::none)
      throw Error("join: the others train a DistributedDataParallel, whose join() this rank did not call");
    inputs.end();
  });
}

}  // namespace lockstep::parallel
