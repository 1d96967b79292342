#include "lockstep/train/judge.h"

#include <cmath>

#include "lockstep/train/checkpoints.h"

namespace lockstep::train {
namespace {

bool is_asked(const Options& options) { return is_plateau(options.lr_schedule) || options.patience > 0; }

// PyTorch's, but for what the flags say.
optim::ReduceLROnPlateau plateau_of(const LrOptions& lr, const optim::PlateauState& state) {
  return {.factor = lr.gamma, .patience = lr.patience, .min_lr = lr.min, .state = state};
}

}  // namespace

Judgement judged(const Options& options, const Judgement& before, const EvalEvent& event) {
  if (event.step <= before.step) return before;
  Judgement next = before;
  next.step = event.step;
  if (is_plateau(options.lr_schedule))
    next.plateau = optim::after(plateau_of(options.lr_schedule, before.plateau), before.plateau, event.evaluation.loss);
  if (options.patience == 0) return next;
  const CheckpointOptions& checkpoints = options.checkpoints;
  const double found = monitored(checkpoints, event);
  const bool is_first = std::isnan(before.best) && !std::isnan(found);
  const bool is_better = smaller_is_better(checkpoints) ? found < before.best : found > before.best;
  next.worse = is_first || is_better ? 0 : before.worse + 1;
  if (next.worse == 0) next.best = found;
  return next;
}

Judge::Judge(const Options& options, parallel::Engine& engine) : options_(options), engine_(engine) {
  if (is_asked(options)) engine.state().keep("judgement", judgement_);
}

void Judge::heed(const EvalEvent& event) {
  if (!is_asked(options_) || event.step <= judgement_.step) return;
  judgement_ = judged(options_, judgement_, event);
  engine_.state().recommit();
}

double Judge::lr() const { return plateau_of(options_.lr_schedule, judgement_.plateau).at(options_.lr).lr; }

bool Judge::ends_run() const { return options_.patience > 0 && judgement_.worse >= options_.patience; }

}  // namespace lockstep::train
