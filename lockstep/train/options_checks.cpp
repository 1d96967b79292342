#include "lockstep/train/options_checks.h"

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/sets/known_sets.h"
#include "lockstep/train/options_optimizers.h"

namespace lockstep::train {
namespace {

using data::SetFiles;

// A program may know some of the flags only.
bool given(const flags::Parsed& parsed, const std::string& flag) {
  return parsed.sources.contains(flag) && parsed.given(flag);
}

void settle_momentum(Options& options, const flags::Parsed& parsed) {
  const OptimizerRow& row = optimizer_named(options.opt);
  const bool has_momentum = given(parsed, "--momentum");
  if (has_momentum && !row.takes_momentum) {
    std::vector<std::string> with;
    for (const OptimizerRow& other : optimizers())
      if (other.takes_momentum) with.push_back(other.name);
    throw UsageError("--momentum has no meaning for --opt " + options.opt + ": it is for " + base::join(with));
  }
  if (!has_momentum) options.momentum = row.momentum;
  if (row.momentum > 0 && options.momentum == 0)
    throw UsageError("--momentum 0 with --opt sgd_nesterov: Nesterov's method needs a momentum above 0");
}

// Pictures of one channel and of three need other numbers.
void settle_transforms(Options& options) {
  const data::KnownSet& set = data::find_set(options.dataset);
  const bool grey = set.task.channels == 1;
  std::string& transforms = options.transforms;
  if (transforms.empty()) transforms = set.transforms;
  if (grey ? transforms == "cifar" || transforms == "imagenet" : transforms == "mnist")
    throw UsageError("--transforms " + transforms + " with --dataset " + options.dataset + ", whose pictures are " +
                     (grey ? "grey: none or mnist" : "in colour: none, cifar or imagenet"));
}

void check_transforms(const Options& options, const flags::Parsed& parsed) {
  const std::string& transforms = options.transforms;
  const bool imagenet = transforms == "imagenet", cifar = transforms == "cifar";
  const bool policy = options.auto_augment != "none";
  const auto refuse_unless = [&](bool useful, const char* flag, const std::string& reason) {
    if (!useful && given(parsed, flag)) throw UsageError(std::string(flag) + " has no meaning " + reason);
  };
  for (const char* flag : {"--train-crop-size", "--val-resize-size", "--val-crop-size"})
    refuse_unless(imagenet, flag, "for --transforms " + transforms + ": it is for imagenet");
  for (const char* flag : {"--val-resize-size", "--val-crop-size"}) refuse_unless(options.eval, flag, "with --no-eval");
  for (const char* flag : {"--auto-augment", "--random-erase", "--interpolation"})
    refuse_unless(imagenet || cifar, flag, "for --transforms " + transforms + ": it is for cifar and imagenet");
  refuse_unless(imagenet || policy, "--interpolation",
                "for --transforms cifar without --auto-augment: nothing is resized or turned");
}

void check_in_memory(const Options& options, const flags::Parsed& parsed) {
  for (const char* flag : {"--cache-images", "--index-cache"})
    if (given(parsed, flag) && data::find_set(options.dataset).files != SetFiles::class_folders)
      throw UsageError(std::string(flag) + " with --dataset " + options.dataset +
                       ", which is held in memory: it is for imagefolder");
}

// A flag beside another one without which it means nothing.
void check_company(const Options& options, const flags::Parsed& parsed) {
  const std::string& scheduler = options.lr_schedule.scheduler;
  const auto only = [&](const char* flag, bool useful, const std::string& with) {
    if (!useful && given(parsed, flag)) throw UsageError(std::string(flag) + " has no meaning without " + with);
  };
  const bool plateau = is_plateau(options.lr_schedule);
  const bool multiplies =
      plateau || scheduler == "steplr" || scheduler == "multisteplr" || scheduler == "exponentiallr";
  only("--lr-step-size", scheduler == "steplr", "--lr-scheduler steplr");
  only("--lr-milestones", scheduler == "multisteplr", "--lr-scheduler multisteplr");
  only("--lr-gamma", multiplies, "--lr-scheduler steplr, multisteplr, exponentiallr or reducelronplateau");
  only("--lr-min", plateau || scheduler == "cosineannealinglr",
       "--lr-scheduler cosineannealinglr or reducelronplateau");
  only("--lr-patience", plateau, "--lr-scheduler reducelronplateau");
  if (!options.eval && (plateau || options.patience > 0))
    throw UsageError(std::string(plateau ? "--lr-scheduler reducelronplateau" : "--patience") +
                     " with --no-eval: nothing is measured");
  if (plateau && options.lr_schedule.gamma >= 1)
    throw UsageError("--lr-gamma with --lr-scheduler reducelronplateau: a number below 1, so that the rate falls");
  if (plateau && options.lr_schedule.warmup_epochs > 0)
    throw UsageError(
        "--lr-warmup-epochs with --lr-scheduler reducelronplateau, which counts evaluations from the start");
  for (const char* flag : {"--lr-warmup-method", "--lr-warmup-decay"})
    only(flag, options.lr_schedule.warmup_epochs > 0, "--lr-warmup-epochs");
  for (const char* flag : {"--model-ema-steps", "--model-ema-decay", "--save-ema-weights"})
    only(flag, options.model_ema.on, "--model-ema");
  if (scheduler == "multisteplr" && options.lr_schedule.milestones.empty())
    throw UsageError("--lr-scheduler multisteplr needs --lr-milestones N,N, the epochs before which the rate falls");
  if (options.test_only && !options.eval) throw UsageError("--test-only with --no-eval: nothing is left to do");
  for (const char* flag : {"--epochs", "--max-steps", "--model-ema", "--save-weights", "--freeze"})
    if (options.test_only && given(parsed, flag))
      throw UsageError(std::string(flag) + " has no meaning with --test-only, which does not train");
}

void check_checkpoints(const Options& options, const flags::Parsed& parsed) {
  const CheckpointOptions& c = options.checkpoints;
  for (const char* flag : {"--save-every", "--checkpoint-hist", "--stop-on"})
    if (options.output_dir.empty() && given(parsed, flag))
      throw UsageError(std::string(flag) + " needs --output-dir DIR, where the checkpoints go");
  const bool saving = saves(c, options.output_dir);
  for (const char* flag : {"--checkpoint-hist", "--stop-on"})
    if (!saving && given(parsed, flag)) throw UsageError(std::string(flag) + " has no meaning without --save-every");
  if (!saving && options.patience == 0 && given(parsed, "--monitor"))
    throw UsageError("--monitor has no meaning without --save-every or --patience");
  if (given(parsed, "--monitor") && !options.eval)
    throw UsageError("--monitor has no meaning with --no-eval: nothing is measured");
  if (c.monitor.starts_with("ema_") && !options.model_ema.on)
    throw UsageError("--monitor " + c.monitor + " has no meaning without --model-ema");
  if (continues_its_directory(c) && options.output_dir.empty())
    throw UsageError("--resume " + c.resume + " needs --output-dir DIR, whose checkpoints it looks for");
  if (!c.resume.empty() && options.overwrite)
    throw UsageError("--resume " + c.resume + " with --overwrite, which removes what there is to go on from");
  if (!c.resume.empty() && options.test_only)
    throw UsageError("--resume has no meaning with --test-only: give the checkpoint's model.safetensors by --weights");
}

void check_places(const Options& options) {
  const bool drawn = data::find_set(options.dataset).files == SetFiles::none;
  if (options.synthetic && !options.data_path.empty())
    throw UsageError("--data-path '" + options.data_path + "' with --synthetic, which reads no files");
  if (options.synthetic && drawn)
    throw UsageError("--synthetic with --dataset " + options.dataset + ", which is drawn anyway");
  if (drawn && !options.data_path.empty())
    throw UsageError("--data-path '" + options.data_path + "' with --dataset " + options.dataset +
                     ", which is drawn and reads no files: add --dataset mnist or leave it out");
  if (!drawn && options.data_path.empty() && !options.synthetic)
    throw UsageError("--dataset " + options.dataset + " needs --data-path DIR, the folder with its files");
  if (options.overwrite && options.output_dir.empty()) throw UsageError("--overwrite needs --output-dir DIR");
}

// A recipe may ask for ninety epochs and their checkpoints.
void settle_fast_dev_run(Options& options) {
  options.max_steps = options.limit_val_batches = 1;
  options.output_dir = options.save_weights = options.save_ema_weights = "";
  options.overwrite = false;
  options.checkpoints = {};
}

}  // namespace

void settle(Options& options, const flags::Parsed& parsed) {
  if (options.fast_dev_run) settle_fast_dev_run(options);
  settle_momentum(options, parsed);
  settle_transforms(options);
  check_in_memory(options, parsed);
  check_transforms(options, parsed);
  check_company(options, parsed);
  if (!options.fast_dev_run) check_checkpoints(options, parsed);
  check_places(options);
}

}  // namespace lockstep::train
