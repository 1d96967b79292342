#include "lockstep/train/options_checks.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/sets/known_sets.h"
#include "lockstep/data/sets/paths.h"
#include "lockstep/train/options_download.h"
#include "lockstep/train/options_optimizers.h"
#include "lockstep/train/options_sources.h"
#include "lockstep/train/options_transforms.h"
#include "lockstep/train/options_weights.h"

namespace lockstep::train {
namespace {

using data::SetFiles;

// The record of a run has its processes and its batch as a whole; who asks for another batch per process, or the other
// way round, means that.
void settle_processes(Options& options, const flags::Parsed& parsed) {
  options.nproc_by_file = only_by_file(parsed, "--nproc-per-node");
  options.restarts_by_file = only_by_file(parsed, "--max-restarts");
  const bool each = only_by_file(parsed, "--batch-size"), all = only_by_file(parsed, "--global-batch-size");
  if (all && options.batch_size && !each) options.global_batch_size.reset();
  if (each && options.global_batch_size && !all) options.batch_size.reset();
}

void settle_momentum(Options& options, const flags::Parsed& parsed) {
  const OptimizerRow& row = optimizer_named(options.opt);
  const bool has_momentum = given(parsed, "--momentum");
  if (has_momentum && !row.takes_momentum) {
    std::vector<std::string> with;
    for (const OptimizerRow& other : optimizers())
      if (other.takes_momentum) with.push_back(other.name);
    throw NoMeaning("--momentum", "for --opt " + options.opt + ": it is for " + base::join(with));
  }
  if (!has_momentum) options.momentum = row.momentum;
  if (row.momentum > 0 && options.momentum == 0)
    throw UsageError("--momentum 0 with --opt sgd_nesterov: Nesterov's method needs a momentum above 0");
}

// What is learned decides on the loss, and on what says that a model is good.
void settle_task(Options& options, const flags::Parsed& parsed) {
  const bool numbers = is_regression(options);
  if (numbers && !given(parsed, "--loss")) options.loss = "mse";
  if (numbers == (options.loss == "cross_entropy"))
    throw UsageError("--loss " + options.loss + " with --dataset " + options.dataset + ", whose targets are " +
                     (numbers ? "numbers: mse, l1 or smooth_l1" : "classes: cross_entropy"));
  std::string& monitor = options.checkpoints.monitor;
  if (numbers && !given(parsed, "--monitor")) monitor = "loss";
  const bool of_numbers = monitor.ends_with("mae") || monitor.ends_with("r2");
  if (!monitor.ends_with("loss") && of_numbers != numbers)
    throw UsageError("--monitor " + monitor + " with --dataset " + options.dataset + ", whose targets are " +
                     (numbers ? "numbers: loss, mae or r2" : "classes: loss, top1 or top5"));
  if (!options.class_weights.empty() &&
      std::ranges::all_of(options.class_weights, [](double weight) { return weight == 0; }))
    throw UsageError("--class-weights of 0 alone: at least one above 0 expected");
  if (!numbers) return;
  for (const char* flag :
       {"--label-smoothing", "--class-weights", "--mixup-alpha", "--cutmix-alpha", "--channels-last", "--ra-sampler"})
    if (given(parsed, flag))
      throw NoMeaning(flag, "for --dataset " + options.dataset + ", which has neither classes nor pictures");
  static const std::vector<std::string> models = {"linear", "mlp", "mlp_dropout"};
  if (!is_own_model(options) && std::ranges::find(models, options.model) == models.end())
    throw UsageError("--model " + options.model + " is for pictures, --dataset " + options.dataset +
                     " has rows of numbers: " + base::join(models) + " take them");
}

void check_columns(const Options& options, const flags::Parsed& parsed) {
  const data::KnownSet& set = set_of(options);
  for (const char* flag : {"--target", "--columns", "--val-fraction"})
    if (given(parsed, flag) && set.files != SetFiles::table)
      throw NoMeaning(flag, "for --dataset " + options.dataset + ": it is for csv");
  if (options.slice_rows && set.files != SetFiles::table && set.files != SetFiles::annotated)
    throw NoMeaning("--slice-rows", "for --dataset " + options.dataset + ": it is for csv and csv-images");
  if (options.slice_rows && options.ra_sampler)
    throw UsageError("--slice-rows with --ra-sampler: each says the order of the samples; leave one out");
  for (const char* flag : {"--train-split", "--val-split", "--test-split"})
    if (given(parsed, flag) && !data::has_named_parts(set))
      throw NoMeaning(flag, "for --dataset " + options.dataset + ": it is for imagefolder, csv-images and csv");
  for (const char* flag : {"--val-split", "--val-fraction"})
    if (given(parsed, flag) && !options.eval) throw NoMeaning(flag, "with --no-eval");
}

// Tensors of a program's own are taken as they are, as the record of a run says of them.
void settle_own_tensors(Options& options, const flags::Parsed& parsed) {
  const bool recorded = only_by_file(parsed, "--transforms") && options.transforms == "none";
  for (const char* flag : {"--transforms", "--mixup-alpha", "--cutmix-alpha", "--ra-sampler"})
    if (given(parsed, flag) && !(recorded && flag == std::string("--transforms")))
      throw NoMeaning(flag, "for --dataset " + options.dataset + ", whose samples are the program's own tensors");
  options.transforms = "none";
}

void settle_transforms_of_numbers(Options& options, const data::KnownSet& set) {
  std::string& transforms = options.transforms;
  if (transforms.empty()) transforms = set.transforms;
  if (transforms != "none" && transforms != "standardize")
    throw UsageError("--transforms " + transforms + " with --dataset " + options.dataset +
                     ", which has rows of numbers: none or standardize");
}

// Pictures of one channel and of three need other numbers.
void settle_transforms(Options& options, const flags::Parsed& parsed) {
  const data::KnownSet& set = set_of(options);
  if (set.files == SetFiles::own_samples || set.files == SetFiles::own_numbers)
    return settle_own_tensors(options, parsed);
  if (data::holds_numbers(set)) return settle_transforms_of_numbers(options, set);
  const bool grey = set.task.channels == 1;
  std::string& transforms = options.transforms;
  if (transforms.empty()) transforms = set.transforms;
  if (is_transform_list(transforms) || (data::is_own(set) && transforms != "standardize")) return;
  if (transforms == "standardize" || (grey ? transforms == "cifar" || transforms == "imagenet" : transforms == "mnist"))
    throw UsageError("--transforms " + transforms + " with --dataset " + options.dataset + ", whose pictures are " +
                     (grey ? "grey: none or mnist" : "in colour: none, cifar or imagenet"));
}

template <class Is>
bool lists(const Options& options, Is is) {
  return is_transform_list(options.transforms) && std::ranges::any_of(transform_steps(options.transforms), is);
}

bool lists_policy(const Options& options, const std::string& name) {
  return lists(options, [&](const TransformStep& s) { return s.kind->name == "auto_augment" && s.word == name; });
}

void check_transforms(const Options& options, const flags::Parsed& parsed) {
  const std::string& transforms = options.transforms;
  const bool imagenet = transforms == "imagenet", cifar = transforms == "cifar";
  const bool policy = options.auto_augment != "none", list = is_transform_list(transforms);
  const auto refuse_unless = [&](bool useful, const char* flag, const std::string& reason) {
    if (!useful && given(parsed, flag)) throw NoMeaning(flag, reason);
  };
  for (const char* flag : {"--train-crop-size", "--val-resize-size", "--val-crop-size"})
    refuse_unless(imagenet, flag, "for --transforms " + transforms + ": it is for imagenet");
  for (const char* flag : {"--val-resize-size", "--val-crop-size"}) refuse_unless(options.eval, flag, "with --no-eval");
  for (const char* flag : {"--auto-augment", "--random-erase", "--interpolation"})
    refuse_unless(imagenet || cifar || (list && std::string(flag) == "--interpolation"), flag,
                  "for --transforms " + transforms + ": it is for cifar and imagenet");
  for (const auto& [flag, name] : {std::pair("--ra-magnitude", "ra"), std::pair("--augmix-severity", "augmix")})
    refuse_unless(options.auto_augment == name || lists_policy(options, name), flag,
                  "without --auto-augment " + std::string(name));
  refuse_unless(
      !list || lists(options, is_interpolated), "--interpolation",
      "for --transforms " + transforms + ": in a list it is for resize, random_resized_crop and auto_augment=augmix");
  refuse_unless(imagenet || policy || list, "--interpolation",
                "for --transforms cifar without --auto-augment: nothing is resized or turned");
  const std::string& how = options.interpolation;
  if ((how == "box" || how == "hamming" || how == "lanczos") && (policy || lists_policy(options, "augmix")))
    throw UsageError("--interpolation " + how + " with a policy that turns pictures: nearest, bilinear or bicubic");
}

void check_in_memory(const Options& options, const flags::Parsed& parsed) {
  const SetFiles files = set_of(options).files;
  const std::string of_set = "for --dataset " + options.dataset;
  for (const char* flag : {"--cache-images", "--index-cache", "--cache-dataset"}) {
    if (!given(parsed, flag)) continue;
    if (options.synthetic) throw NoMeaning(flag, "with --synthetic, which reads no files");
    if (data::is_own(set_of(options)))
      throw NoMeaning(flag, of_set + ", which is the program's own: it is for imagefolder");
    if (files == SetFiles::annotated && std::string(flag) == "--cache-images") continue;
    if (files == SetFiles::annotated) throw NoMeaning(flag, of_set + ", whose files are listed: it is for imagefolder");
    if (files != SetFiles::class_folders)
      throw NoMeaning(flag, of_set + ", which is held in memory: it is for imagefolder");
  }
}

// A folder for each set that is looked at.
void settle_index_cache(Options& options, const flags::Parsed& parsed) {
  if (!options.cache_dataset) return;
  const std::string place =
      cache_folder("index", ::getenv) + std::filesystem::absolute(options.data_path).lexically_normal().string();
  if (given(parsed, "--index-cache") && options.index_cache != place)  // the record of a run has both
    throw UsageError("--cache-dataset with --index-cache " + base::shown(options.index_cache) +
                     ", which is another folder than the user's cache: give one of the two");
  options.index_cache = place;
}

// To the file that torchvision would have brought.
void settle_weights(Options& options) {
  if (!is_published_name(options.weights)) return;
  const std::string name = options.weights;
  options.weights = file_of_published(name, options.model, ::getenv);
  if (!data::is_there(options.weights))
    throw UsageError("--weights " + name + ": no file '" + base::shown(options.weights) +
                     "', where torchvision keeps it; python3 -c \"import torchvision; torchvision.models.get_weight('" +
                     name + "').get_state_dict()\" brings it");
}

// One process with several replicas, or several with one each.
void check_parallel(const Options& options, const flags::Parsed& parsed) {
  if (options.fuse && options.sync_bn)
    throw UsageError("--fuse with --sync-bn: statistics over all processes are made by BatchNorm itself");
  if (options.fuse && is_replicated(options))
    throw UsageError("--fuse with --parallel dp: it is for processes; replicas are made of the model as it is");
  if (!is_replicated(options)) {
    if (given(parsed, "--replicas"))
      throw NoMeaning("--replicas", "without --parallel dp: -n says how many processes there are");
    return;
  }
  // Without a number there is one on each GPU, which are counted where they are used (worker.cpp).
  if (!options.replicas && options.device != "cuda" && options.device != "auto") throw UsageError(kReplicasMissing);
  if (options.processes() > 1 || options.nproc_by_gpus)
    throw UsageError("--nproc-per-node " + (options.nproc_by_gpus ? "gpu" : std::to_string(options.processes())) +
                     " with --parallel dp, which is one process with --replicas N");
  if (options.sync_bn)
    throw UsageError("--sync-bn with --parallel dp: it is for processes; replicas have statistics of their own parts");
  if (options.reduction != "exact")
    throw UsageError("--reduction " + options.reduction + " with --parallel dp, which is one process on one node");
  if (options.compression != "none")
    throw UsageError("--compression " + options.compression + " with --parallel dp, which is one process on one node");
  if (options.zero1 != "none") throw UsageError("--zero1 with --parallel dp, which is one process on one node");
  if (options.wave_bytes != Options().wave_bytes)
    throw UsageError("--overlap-bytes with --parallel dp, which is one process on one node");
  if (options.bind_to != "none")
    throw UsageError("--bind-to " + options.bind_to + " with --parallel dp, whose replicas would share those cores");
}

// A flag beside another one without which it means nothing.
void check_company(const Options& options, const flags::Parsed& parsed) {
  const std::string& scheduler = options.lr_schedule.scheduler;
  const auto only = [&](const char* flag, bool useful, const std::string& with) {
    if (!useful && given(parsed, flag)) throw NoMeaning(flag, "without " + with);
  };
  const bool plateau = is_plateau(options.lr_schedule);
  const bool multiplies =
      plateau || scheduler == "steplr" || scheduler == "multisteplr" || scheduler == "exponentiallr";
  only("--ra-reps", options.ra_sampler, "--ra-sampler");
  only("--lr-step-size", scheduler == "steplr", "--lr-scheduler steplr");
  only("--lr-milestones", scheduler == "multisteplr", "--lr-scheduler multisteplr");
  only("--lr-gamma", multiplies, "--lr-scheduler steplr, multisteplr, exponentiallr or reducelronplateau");
  only("--lr-min", plateau || scheduler == "cosineannealinglr",
       "--lr-scheduler cosineannealinglr or reducelronplateau");
  only("--lr-patience", plateau, "--lr-scheduler reducelronplateau");
  if (!options.eval && plateau) throw NoMeaning("--lr-scheduler", scheduler, "with --no-eval: nothing is measured");
  if (!options.eval && options.patience > 0) throw NoMeaning("--patience", "with --no-eval: nothing is measured");
  if (plateau && options.lr_schedule.gamma >= 1)
    throw UsageError("--lr-gamma with --lr-scheduler reducelronplateau: a number below 1, so that the rate falls");
  if (plateau && options.lr_schedule.warmup_epochs > 0)
    throw NoMeaning("--lr-warmup-epochs",
                    "with --lr-scheduler reducelronplateau, which counts evaluations from the start");
  for (const char* flag : {"--lr-warmup-method", "--lr-warmup-decay"})
    only(flag, options.lr_schedule.warmup_epochs > 0, "--lr-warmup-epochs");
  for (const char* flag : {"--model-ema-steps", "--model-ema-decay", "--save-ema-weights"})
    only(flag, options.model_ema.on, "--model-ema");
  if (!options.weights_map.empty() && options.weights.empty())
    throw NoMeaning("--weights-map", "without --weights, in which the names are");
  if (scheduler == "multisteplr" && options.lr_schedule.milestones.empty())
    throw UsageError("--lr-scheduler multisteplr needs --lr-milestones N,N, the epochs before which the rate falls");
  if (options.test_only && !options.eval) throw NoMeaning("--no-eval", "with --test-only: nothing is left to do");
  for (const char* flag :
       {"--epochs", "--max-steps", "--max-time", "--model-ema", "--save-weights", "--freeze", "--timeline",
        "--patience", "--save-every", "--checkpoint-hist", "--checkpoint-best", "--stop-on", "--eval-best"})
    if (options.test_only && given(parsed, flag)) throw NoMeaning(flag, "with --test-only, which does not train");
}

void check_checkpoints(const Options& options, const flags::Parsed& parsed) {
  const CheckpointOptions& c = options.checkpoints;
  const bool saving = saves(c, options.output_dir), never = c.save_every.unit == SaveEvery::Unit::never;
  for (const char* flag : {"--checkpoint-hist", "--checkpoint-best", "--stop-on"})
    if (never && given(parsed, flag)) throw NoMeaning(flag, "without --save-every");
  if (!saving && !never) throw UsageError("--save-every needs --output-dir DIR, where the checkpoints go");
  const bool in_shares = options.zero1 != "none";
  if (in_shares && c.save_every.unit == SaveEvery::Unit::seconds)
    throw UsageError(
        "--zero1 with --save-every in seconds, which each process counts for itself: steps (100) or epochs (2ep) are "
        "wanted, behind which all save together");
  if (in_shares && saving && options.overwrite)
    throw UsageError(
        "--zero1 with --overwrite and --save-every: a job that has lost a node goes back to the checkpoints in "
        "--output-dir, which may be those of the run that it replaces; remove them, or give another directory");
  // The record of a regression tells its monitor, which is another than where classes are learned.
  const bool monitor = given(parsed, "--monitor") && !(is_regression(options) && c.monitor == "loss");
  if (!saving && options.patience == 0 && monitor) throw NoMeaning("--monitor", "without --save-every or --patience");
  if (!options.eval && given(parsed, "--checkpoint-best"))
    throw NoMeaning("--checkpoint-best", "with --no-eval: no checkpoint is better than another");
  if (monitor && !options.eval) throw NoMeaning("--monitor", "with --no-eval: nothing is measured");
  if (options.eval_best && (!saving || !options.eval))
    throw NoMeaning("--eval-best",
                    saving ? "with --no-eval: no checkpoint is the best" : "without --save-every and --output-dir");
  if (!options.test_split.empty() && !options.eval_best) throw NoMeaning("--test-split", "without --eval-best");
  if (c.monitor.starts_with("ema_") && !options.model_ema.on)
    throw NoMeaning("--monitor", c.monitor, "without --model-ema");
  if (options.test_only && continues_its_directory(c))
    throw NoMeaning("--resume", c.resume, "with --test-only: the path of a run or of a checkpoint has");
  if (options.test_only && !c.resume.empty() && !options.weights.empty())
    throw NoMeaning("--weights", "with --test-only and --resume, whose weights are evaluated");
  if (continues_its_directory(c) && options.output_dir.empty())
    throw UsageError("--resume " + c.resume + " needs --output-dir DIR, whose checkpoints it looks for");
  if (!c.resume.empty() && options.overwrite)
    throw NoMeaning("--resume", c.resume, "with --overwrite, which removes what there is to go on from");
  if (!c.resume.empty() && (options.epochs == 0 || options.max_steps == 0))
    throw NoMeaning("--resume", "with --epochs 0 or --max-steps 0: nothing would be trained");
}

// Layers of one's own may be members that do not follow a replaced one.
void check_own_model(const Options& options) {
  if (is_own_model(options) && !options.head.empty())
    throw NoMeaning("--head", options.head, "for --model " + options.model + ", which is the program's own");
}

void settle_download(Options& options) {
  if (!options.download_mirror.empty() && !options.download) throw NoMeaning("--download-mirror", "without --download");
  if (!options.download) return;
  if (options.synthetic) throw UsageError("--download with --synthetic, which reads no files");
  if (set_of(options).downloads.empty())
    throw UsageError("--download with --dataset " + options.dataset +
                     ", which has no well-known address: " + base::join(data::fetched_set_names()) + " have one");
  if (options.data_path.empty()) options.data_path = cache_folder(options.dataset, ::getenv);
}

void check_places(const Options& options) {
  for (const auto& [flag, file] :
       {std::pair("--save-weights", options.save_weights), std::pair("--save-ema-weights", options.save_ema_weights)})
    if (file.ends_with(".pt") || file.ends_with(".pth"))
      throw UsageError(std::string(flag) + " '" + base::shown(file) +
                       "': safetensors are written, so a name that ends in .safetensors; lockstep checkpoint export " +
                       "makes a .pt of one");
  const data::KnownSet& set = set_of(options);
  const bool drawn = data::is_drawn(set), own = data::is_own(set);
  const std::string path = "'" + base::shown(options.data_path) + "'";
  if (options.synthetic && own)
    throw UsageError("--synthetic with --dataset " + options.dataset + ", whose shape only the program knows");
  if (options.synthetic && set.files == SetFiles::table)
    throw UsageError("--synthetic with --dataset csv, whose columns only its file knows: --dataset line is drawn");
  if (options.synthetic && !options.data_path.empty())
    throw NoMeaning("--data-path", path, "with --synthetic, which reads no files");
  if (options.synthetic && drawn)
    throw NoMeaning("--synthetic", "for --dataset " + options.dataset + ", which is drawn anyway");
  if (drawn && !options.data_path.empty())
    throw NoMeaning("--data-path", path,
                    "for --dataset " + options.dataset +
                        ", which is drawn and reads no files: add --dataset mnist or leave it out");
  if (!drawn && !own && options.data_path.empty() && !options.synthetic)
    throw UsageError("--dataset " + options.dataset + " needs --data-path " +
                     (set.files == SetFiles::table ? "FILE, or a folder with train.csv and val.csv"
                                                   : "DIR, the folder with its files" + data::how_to_download(set)));
  if (options.overwrite && options.output_dir.empty()) throw UsageError("--overwrite needs --output-dir DIR");
}

// A recipe may ask for ninety epochs and their checkpoints.
void settle_fast_dev_run(Options& options) {
  options.max_steps = options.limit_val_batches = 1;
  // One step there is, and an epoch behind the warm-up for the schedule.
  options.epochs = std::max(options.epochs.value_or(1), options.lr_schedule.warmup_epochs + 1);
  options.output_dir = options.save_weights = options.save_ema_weights = options.timeline = "";
  options.overwrite = options.eval_best = false;
  const CheckpointOptions& c = options.checkpoints;
  const bool looks_at_one = options.test_only && !continues_its_directory(c);
  options.checkpoints = {.monitor = c.monitor, .resume = looks_at_one ? c.resume : ""};
}

}  // namespace

void settle(Options& options, const flags::Parsed& parsed) {
  options.by_environment = std::ranges::any_of(
      parsed.sources, [](const auto& flag) { return std::ranges::count(flag.second, flags::Source::environment) > 0; });
  settle_processes(options, parsed);
  if (options.fast_dev_run) settle_fast_dev_run(options);
  settle_download(options);
  settle_momentum(options, parsed);
  settle_task(options, parsed);
  settle_transforms(options, parsed);
  check_columns(options, parsed);
  check_in_memory(options, parsed);
  settle_index_cache(options, parsed);
  settle_weights(options);
  check_transforms(options, parsed);
  check_parallel(options, parsed);
  check_company(options, parsed);
  if (!options.fast_dev_run) check_checkpoints(options, parsed);
  check_places(options);
  check_own_model(options);
}

}  // namespace lockstep::train
