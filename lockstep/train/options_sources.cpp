#include "lockstep/train/options_sources.h"

#include "lockstep/train/options_optimizers.h"

namespace lockstep::train {

// A program may know some of the flags only.
bool given(const flags::Parsed& parsed, const std::string& flag) {
  return parsed.sources.contains(flag) && parsed.given(flag);
}

bool only_by_file(const flags::Parsed& parsed, const std::string& flag) {
  return given(parsed, flag) && parsed.sources.at(flag).front() == flags::Source::file;
}

void take_back(Options& options, flags::Parsed& parsed) {
  const Options plain{};
  const auto unless = [&parsed](bool useful, const char* cause, const char* flag, auto& value, const auto& initial) {
    if (useful || !only_by_file(parsed, flag) || !given(parsed, cause) || only_by_file(parsed, cause)) return;
    value = initial;
    parsed.sources.at(flag).clear();
  };
  LrOptions& lr = options.lr_schedule;
  const bool plateau = is_plateau(lr), steps = lr.scheduler == "steplr", milestones = lr.scheduler == "multisteplr";
  const bool multiplies = plateau || steps || milestones || lr.scheduler == "exponentiallr";
  unless(steps, "--lr-scheduler", "--lr-step-size", lr.step_size, plain.lr_schedule.step_size);
  unless(milestones, "--lr-scheduler", "--lr-milestones", lr.milestones, plain.lr_schedule.milestones);
  unless(multiplies, "--lr-scheduler", "--lr-gamma", lr.gamma, plain.lr_schedule.gamma);
  unless(plateau || lr.scheduler == "cosineannealinglr", "--lr-scheduler", "--lr-min", lr.min, plain.lr_schedule.min);
  unless(plateau, "--lr-scheduler", "--lr-patience", lr.patience, plain.lr_schedule.patience);
  unless(optimizer_named(options.opt).takes_momentum, "--opt", "--momentum", options.momentum, plain.momentum);
  unless(!options.test_only, "--test-only", "--epochs", options.epochs, plain.epochs);
  unless(options.eval, "--no-eval", "--monitor", options.checkpoints.monitor, plain.checkpoints.monitor);
}

}  // namespace lockstep::train
