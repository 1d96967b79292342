#include "lockstep/train/terminal.h"

#include <unistd.h>

#include "lockstep/base/cores.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/text.h"
#include "lockstep/train/hints.h"

namespace lockstep::train {
namespace {

void say_hint(const std::string& hint) {
  if (!hint.empty()) base::Outlet::console(STDERR_FILENO).offer(hint + "\n");
}

metrics::RunLength length_of(const RunSize& run, const Options& options) {
  const std::int64_t epoch = run.epoch_steps, steps = run.total_steps + run.ahead;
  return {.steps = run.total_steps,
          .samples_per_step = run.plan.global_batch,
          .epochs = epoch > 0 ? (steps + epoch - 1) / epoch : 0,
          .unit = is_regression(options) ? "samples" : "images"};
}

}  // namespace

void Terminal::started(const RunSize& run) {
  if (!options().recipe.empty() || !options().config.empty() || options().by_environment)
    say_hint("lockstep: " + (options().recipe.empty() ? "" : "recipe " + options().recipe + ": ") +
             base::shown(options_as_flags(options())));
  if (!options().left_out.empty())
    say_hint("lockstep: left out, as of no meaning beside the flags given: " + base::join(options().left_out));
  if (!run.resumed_from.empty() && options().test_only)
    say_hint("lockstep: evaluating '" + base::shown(run.resumed_from) + "'");
  else if (!run.resumed_from.empty())
    say_hint("lockstep: going on from '" + base::shown(run.resumed_from) + "', behind step " +
             std::to_string(run.first_step - 1) + " of " + std::to_string(run.total_steps));
  if (!run.other_schedule.empty())
    say_hint("lockstep: the learning rate goes otherwise than before: " + run.other_schedule);
  if (!run.other_average.empty())
    say_hint("lockstep: the average of the weights goes otherwise than before: " + run.other_average);
  if (!run.other_training.empty())
    say_hint("lockstep: steps are computed otherwise than before: " + run.other_training);
  if (!run.other_evaluation.empty())
    say_hint("lockstep: metrics do not compare with those of before, by which 'best' is chosen: " +
             run.other_evaluation);
  if (!run.other_device.empty())
    say_hint("lockstep: from here on the bits are those of another device: " + run.other_device);
  if (!run.new_layer.empty() && run.first_step == 1) say_hint("lockstep: " + run.new_layer);
  if (run.total_steps > 0) {
    say_hint(idle_cores_hint(run.world_size * options().replicas.value_or(1), options().threads, base::usable_cores()));
    say_hint(channels_last_hint(run.convolutions, options().channels_last));
  }
  progress_.emplace(STDOUT_FILENO, length_of(run, options()));
  steps_ = run.total_steps;
  EventObserver::started(run);
}

void Terminal::stopped(const RunStop& stop) {
  const std::string step = "behind step " + std::to_string(stop.step) + " of " + std::to_string(steps_);
  base::tell(STDERR_FILENO,
             stop.checkpoint.empty()
                 ? "lockstep: error: stopped " + step + " by a signal, and the checkpoint could not be written\n"
                 : "lockstep: stopped " + step + " by a signal; saved in '" + base::shown(stop.checkpoint) +
                       "': --resume auto goes on from there\n");
}

}  // namespace lockstep::train
