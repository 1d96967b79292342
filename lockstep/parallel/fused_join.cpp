#include "lockstep/parallel/fused_join.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/parallel/shards.h"

namespace lockstep::parallel {
namespace {

struct ToldOptions {
  double max_norm = 0, norm_type = 2, max_value = 0;
  bool error_if_nonfinite = false, has_denominator = false, is_scaled = false;
  std::uint64_t rules = 0;  ///< Rules::options()
};

struct ToldRule {
  optim::RuleKey key;
  optim::Rule rule;
};
static_assert(std::is_trivially_copyable_v<ToldRule>);

std::string bytes_of(const ToldOptions& options, const std::vector<ToldRule>& rules) {
  std::string bytes(sizeof options + rules.size() * sizeof(ToldRule), '\0');
  std::memcpy(bytes.data(), &options, sizeof options);
  std::memcpy(bytes.data() + sizeof options, rules.data(), rules.size() * sizeof(ToldRule));
  return bytes;
}

std::pair<ToldOptions, std::vector<ToldRule>> told_by(const std::string& bytes) {
  ToldOptions options;
  std::memcpy(&options, bytes.data(), sizeof options);
  std::vector<ToldRule> rules((bytes.size() - sizeof options) / sizeof(ToldRule));
  std::memcpy(rules.data(), bytes.data() + sizeof options, rules.size() * sizeof(ToldRule));
  return {options, std::move(rules)};
}

// Of all parameters, for each rank updates others.
std::vector<ToldRule> rules_of_step(const FusedState& fused, const optim::Rules& rules) {
  std::vector<ToldRule> found;
  const auto& parameters = fused.state.layout().parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const optim::RuleKey key{parameters[i].spec.group, fused.step_counts()[i] + 1};
    if (std::ranges::find(found, key, &ToldRule::key) == found.end()) found.push_back({key, rules(key)});
  }
  return found;
}

}  // namespace

void FusedJoin::join(const std::function<void()>& loop, const JoinOptions& options) {
  if (inputs_) throw UsageError("data parallel: join() within join()");
  inputs_.emplace(group_, options, &clock_, fused_.device);
  fused_.joins = true;
  const std::shared_ptr<void> done(nullptr, [this](void*) {
    fused_.joins = false;
    inputs_.reset();
  });
  try {
    inputs_->run(loop);
  } catch (...) {
    session_.restart();  // as below: a step behind early termination is made of its own inputs alone
    throw;
  }
  follow_the_others();
}

void FusedJoin::step(const optim::Rules& rules, const optim::StepOptions& options) {
  if (!inputs_) return step_.run(rules, options);
  check_scale(options);
  step_.prepare(rules);  // what this rank has to mend first; the others wait for its word
  inputs_->announce(UnevenInputs::Pass::step);
  optim::StepOptions with_mean = options;
  share(&rules, with_mean);
  step_.run(rules, with_mean);
}

void FusedJoin::check_scale(const optim::StepOptions& options) const {
  if (!options.loss_scale || inputs_->options().throw_on_early_termination) return;
  const amp::GradScaler* const scaler = inputs_->options().scaler;
  if (scaler == nullptr)
    throw UsageError(
        "data parallel: join() with a scaled loss, where the scale of a rank without inputs would stand still; give "
        "its GradScaler as JoinOptions::scaler");
  if (scaler->get_scale() != options.loss_scale->scale)
    throw UsageError("data parallel: within join() a step by a loss scale of " +
                     std::to_string(options.loss_scale->scale) + ", but that of JoinOptions::scaler is " +
                     std::to_string(scaler->get_scale()));
}

// Of a rank without inputs, for a step of the others by a scaled loss.
optim::LossScale FusedJoin::scale_of_this_rank() const {
  if (amp::GradScaler* const scaler = inputs_->options().scaler) return scaler->loss_scale();
  const std::string cause = "data parallel: rank " + std::to_string(inputs_->source()) +
                            " scales its loss within join(), and rank " + std::to_string(group_->rank()) +
                            " was given no JoinOptions::scaler; give one on all ranks";
  group_->abort(cause, kExitUsage);
  throw UsageError(cause);
}

// Returns the rules that the last rank with inputs has; `options` become its, but for the denominator, which is this
// rank's. Without a denominator of the program, a mean over those ranks that have inputs is one over their shards.
optim::Rules FusedJoin::share(const optim::Rules* mine, optim::StepOptions& options) {
  const bool over_those_left = !inputs_->options().divide_by_initial_world_size;
  std::string bytes;
  if (group_->rank() == inputs_->source())
    bytes =
        bytes_of({options.max_norm, options.norm_type, options.max_value, options.error_if_nonfinite,
                  options.denominator.has_value() || over_those_left, options.loss_scale.has_value(), mine->options()},
                 rules_of_step(fused_, *mine));
  const auto begin = std::chrono::steady_clock::now();
  const auto [told, rules] = told_by(comm::broadcast_bytes(*group_, bytes, inputs_->source()));
  clock_.waited("rules", begin);
  if (mine != nullptr) {
    if (!options.denominator && over_those_left)
      options.denominator = shards_of(group_->topology(), fused_.state.layout().options().shards).count();
    return *mine;
  }
  options = {.max_norm = told.max_norm,
             .norm_type = told.norm_type,
             .max_value = told.max_value,
             .error_if_nonfinite = told.error_if_nonfinite};
  if (told.has_denominator) options.denominator = 0;
  if (told.is_scaled) options.loss_scale = scale_of_this_rank();
  const auto rule_of = [rules = rules](const optim::RuleKey& key) {
    return std::ranges::find(rules, key, &ToldRule::key)->rule;
  };
  return {rule_of, told.rules};
}

void FusedJoin::follow_the_others() {
  session_.restart();  // without what was begun of an input that no step was made of
  while (inputs_->follow() != UnevenInputs::Pass::none) {
    optim::StepOptions options;
    const optim::Rules rules = share(nullptr, options);
    try {
      step_.run(rules, options, /*has_inputs=*/false);
    } catch (const GroupAborted&) {
      throw;
    } catch (const Error&) {  // on all ranks, with nothing updated: those with inputs decide what comes now
    }
  }
  inputs_->end();
}

}  // namespace lockstep::parallel
