#include "lockstep/train/options_table.h"

#include <algorithm>
#include <limits>

#include "lockstep/base/control_page.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/sets/known_sets.h"
#include "lockstep/device/facts/wanted.h"
#include "lockstep/flags/values.h"
#include "lockstep/train/options_head.h"
#include "lockstep/train/options_recipes.h"
#include "lockstep/train/options_scripts.h"
#include "lockstep/train/options_transforms.h"

namespace lockstep::train {
namespace {

using flags::also_called;
using flags::integer;
using flags::kNotNegative;
using flags::kPositive;
using flags::off;
using flags::on;
using flags::one_of;
using flags::or_alone;
using flags::real;
using flags::reals;
using flags::rising;
using flags::text;
using flags::unrecorded;

constexpr std::int64_t kMostSamples = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostSteps = std::int64_t(1) << 40;  // a mark in the control page counts to 2^44
constexpr std::int64_t kMostMebibytes = std::int64_t(1) << 30;
constexpr std::int64_t kMostPixels = 1 << 14;
constexpr std::int64_t kMostShards = 1 << 16;
constexpr std::int64_t kMostBytes = std::int64_t(1) << 40;
constexpr std::int64_t kMostThreads = 1024;
constexpr std::int64_t kMostRestarts = 1'000'000;
constexpr std::int64_t kLargestSeed = std::numeric_limits<std::int64_t>::max();

constexpr flags::Reals kProbability{"a number from 0 to 1", [](double x) { return x >= 0 && x <= 1; }};
constexpr flags::Reals kFactor{"a number above 0, at most 1", [](double x) { return x > 0 && x <= 1; }};
constexpr flags::Reals kMomentum{"a number from 0 to less than 1", [](double x) { return x >= 0 && x < 1; }};
constexpr flags::Reals kShare{"a number above 0, below 1", [](double x) { return x > 0 && x < 1; }};
constexpr flags::Reals kSeconds{"seconds, more than 0 and at most 1000000", [](double x) { return x > 0 && x <= 1e6; }};
constexpr flags::Reals kSecondsOrNone{"seconds from 0 to 1000000", [](double x) { return x >= 0 && x <= 1e6; }};

flags::Value transforms(std::string& place) {
  flags::Value value = one_of(place, transform_names());
  const auto read_name = value.read;
  value.read = [&place, read_name](const std::string& name, const std::string& text) {
    if (text.empty() || !is_transform_list(text)) return read_name(name, text);
    transform_steps(text);
    place = text;
  };
  return value;
}

flags::Value head(std::string& place) {
  flags::Value value = text(place, "N,relu,N");
  const auto read_text = value.read;
  value.read = [read_text](const std::string& name, const std::string& text) {
    read_text(name, text);
    head_layers(text);
  };
  return value;
}

// Scripts have it in capitals at times.
flags::Value device(std::string& place) {
  flags::Value value = text(place, "cpu|cuda|cuda:N|auto");
  value.read = [&place](const std::string& name, const std::string& text) {
    const std::string lower = base::small_letters(text);
    try {
      device::parse_wanted(lower);
    } catch (const UsageError& error) {
      throw UsageError(name + ": " + error.what());
    }
    place = lower;
  };
  return value;
}

// A number, or "gpu".
flags::Value processes(Options& o) {
  flags::Value value = integer(o.nproc_per_node, 1, base::kMaxLocalRanks);
  const auto read_number = value.read;
  value.word = "N|gpu";
  value.read = [&o, read_number](const std::string& name, const std::string& text) {
    o.nproc_by_gpus = text == "gpu";
    if (o.nproc_by_gpus)
      o.nproc_per_node.reset();
    else
      read_number(name, text);
  };
  return value;
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) names.push_back(recipe.name);
  return names;
}

// Those that the program adds, then the built-in ones.
std::vector<std::string> model_words(const Options& options) {
  std::vector<std::string> names = options.own.models;
  names.insert(names.end(), model_names().begin(), model_names().end());
  return names;
}

std::vector<std::string> set_words(const Options& options) {
  std::vector<std::string> names = data::set_names(), own;
  for (const data::KnownSet& set : options.own.sets) own.push_back(set.name);
  names.insert(names.begin(), own.begin(), own.end());
  return names;
}

flags::Group job_flags(Options& o) {
  return {
      "Job",
      {unrecorded({"--recipe", one_of(o.recipe, recipe_names()), "Flags of a known job: lockstep recipes"}),
       unrecorded({"--config", text(o.config, "FILE"), "Flags from a file, as the config.json of a run"}),
       also_called({"--world-size"}, {"-n, --nproc-per-node", processes(o),
                                      "Processes on this machine; gpu: one for each of its GPUs", "1"}),
       {"--parallel", one_of(o.parallel, parallel_names()),
        "dp: one process whose replicas of the model each take a part of the batch (torch.nn.DataParallel)"},
       {"--replicas", integer(o.replicas, 1, base::kMaxLocalRanks),
        "Of the model, with --parallel dp; with --device cuda on a GPU each", "none"},
       also_called({"-a", "--arch"}, {"--model", one_of(o.model, model_words(o))}),
       {"--head", head(o.head), "Layers in place of the last one: outputs, relu, gelu, tanh, dropout=P"},
       {"--epochs", integer(o.epochs, 0, kMostSamples), "Passes over the data", "1"},
       {"--max-steps", integer(o.max_steps, 0, kMostSteps),
        "End after N steps; alone it crosses epochs, with --epochs the first reached ends the run"},
       {"--max-time", real(o.max_time, kSeconds, "SECONDS"), "End behind the step that is under way then", "no limit"},
       {"--limit-train-batches", integer(o.limit_train_batches, 1, kMostSteps), "Steps of an epoch at most", "all"},
       {"--limit-val-batches", integer(o.limit_val_batches, 1, kMostSteps),
        "Chunks of an evaluation at most, of 500 small pictures each", "all"},
       {"--fast-dev-run", on(o.fast_dev_run),
        "Whatever other flags say: one step, an evaluation of one chunk, nothing saved"}}};
}

flags::Group data_flags(Options& o) {
  return {
      "Data",
      {{"--dataset", one_of(o.dataset, set_words(o)), "digits is drawn, not read"},
       also_called({"--data-dir"}, {"--data-path", text(o.data_path, "DIR"), "Folder with the data set's files"}),
       unrecorded({"--download", on(o.download),
                   "Bring the data set's files first, unless they are whole: lockstep data",
                   "do not; with it --data-path is the user's cache"}),
       unrecorded({"--download-mirror", text(o.download_mirror, "URL"), "From here; checksums stay the same",
                   "the well-known addresses"}),
       {"--train-split", text(o.train_split, "NAME"),
        "The part of --data-path to train on: folder NAME, or for csv and csv-images NAME.csv"},
       {"--val-split", text(o.val_split, "NAME"), "The part to evaluate on", "val, or test where there is no val"},
       {"--test-split", text(o.test_split, "NAME"), "The part that --eval-best looks at", "the one to evaluate on"},
       also_called({"--dummy"}, {"--synthetic", on(o.synthetic), "Pictures made of nothing, in the data set's shape"}),
       {"--target", text(o.target, "COLUMN,..."), "Columns of a csv that are learned, by names or numbers",
        "the last one"},
       {"--columns", text(o.columns, "COLUMN,..."), "Those that it is learned from", "all others"},
       {"--slice-rows", on(o.slice_rows),
        "Each logical shard trains on a slice of the rows of csv or csv-images, as a process that reads a part does"},
       {"--val-fraction", real(o.val_fraction, kShare, "P"),
        "Of the rows of a csv that is one file, to evaluate on; spread evenly over it"},
       {"--index-cache", text(o.index_cache, "DIR"), "Remember here what the folders of an imagefolder hold"},
       {"--cache-dataset", on(o.cache_dataset), "Remember it in the user's cache"},
       {"--cache-images", integer(o.cache_images, 0, kMostMebibytes),
        "MiB of decoded pictures that each process keeps of the training set, and as many to evaluate on"},
       {"-j, --workers", integer(o.workers, 1, kMostThreads), "Threads per process that prepare batches"}}};
}

flags::Group transform_flags(Options& o) {
  return {"Transforms",
          {{"--transforms", transforms(o.transforms), "or a list of steps, as auto_augment,resize=224x224,to_tensor",
            "what suits the data set"},
           {"--train-crop-size", integer(o.train_crop_size, 1, kMostPixels),
            "Side of the pictures that the imagenet transforms cut out to train on"},
           {"--val-resize-size", integer(o.val_resize_size, 1, kMostPixels),
            "Smaller edge to which the imagenet transforms resize for evaluation"},
           {"--val-crop-size", integer(o.val_crop_size, 1, kMostPixels),
            "Side of the middle on which the imagenet transforms evaluate"},
           also_called({"--train-interpolation"}, {"--interpolation", one_of(o.interpolation, interpolation_names())}),
           {"--auto-augment", one_of(o.auto_augment, auto_augment_names()), "with cifar and imagenet transforms"},
           {"--ra-magnitude", integer(o.ra_magnitude, 0, 30), "How strong the operations of the policy ra are"},
           {"--augmix-severity", integer(o.augmix_severity, 1, 10), "How strong those of augmix may get"},
           also_called({"--reprob"}, {"--random-erase", real(o.random_erase, kProbability, "P"),
                                      "Probability that a part is erased, with cifar and imagenet transforms"}),
           also_called({"--mixup"}, {"--mixup-alpha", real(o.mixup_alpha, kNotNegative),
                                     "Mix pairs of samples, alpha of the Beta distribution", "0: do not"}),
           also_called({"--cutmix"},
                       {"--cutmix-alpha", real(o.cutmix_alpha, kNotNegative),
                        "Paste parts of samples into others; with --mixup-alpha one of both per step", "0: do not"}),
           {"--ra-sampler", on(o.ra_sampler),
            "Augment a sample several times in a step, and a part of the samples in an epoch"},
           {"--ra-reps", integer(o.ra_reps, 1, kMostShards), "So often"}}};
}

flags::Group batch_flags(Options& o) {
  return {"Batch",
          {{"-b, --batch-size", integer(o.batch_size, 1, kMostSamples), "Samples per process and step", "100"},
           {"--global-batch-size", integer(o.global_batch_size, 1, kMostSamples), "Samples per step",
            "batch size x processes x --grad-accum-steps"},
           {"--logical-shards", integer(o.logical_shards, 1, kMostShards),
            "Slices the global batch is cut into; fixes the bits of the result", "processes x --grad-accum-steps"},
           {"--grad-accum-steps", integer(o.grad_accum_steps, 1, kMostShards),
            "Batches per process and step, whose gradients add up"}}};
}

flags::Group optimizer_flags(Options& o) {
  return {
      "Optimizer",
      {{"--opt", one_of(o.opt, optimizer_names())},
       also_called({"--learning-rate"}, {"--lr", real(o.lr, kNotNegative), "Learning rate"}),
       {"--momentum", real(o.momentum, kMomentum), "For sgd, lars and rmsprop", "0; sgd_nesterov: 0.9"},
       also_called({"--wd"}, {"--weight-decay", real(o.weight_decay, kNotNegative), "Weight decay"}),
       {"--norm-weight-decay", real(o.norm_weight_decay, kNotNegative), "Of normalisation layers", "as --weight-decay"},
       {"--bias-weight-decay", real(o.bias_weight_decay, kNotNegative), "Of biases", "as --weight-decay"},
       {"--transformer-embedding-decay", real(o.transformer_embedding_decay, kNotNegative),
        "Of embeddings as vit_b_16's class_token", "as --weight-decay"},
       also_called({"--clip-grad"}, {"--clip-grad-norm", real(o.clip_grad_norm, kPositive),
                                     "Largest norm of all gradients", "no limit"}),
       {"--loss", one_of(o.loss, loss_names()), "to train by", "cross_entropy; of rows of numbers: mse"},
       {"--class-weights", reals(o.class_weights, kNotNegative), "Of the cross entropy to train by, one for each class",
        "all 1"},
       also_called({"--smoothing"},
                   {"--label-smoothing", real(o.label_smoothing, kProbability), "Of the cross entropy to train by"}),
       {"--model-ema", on(o.model_ema.on), "Keep a running average of the weights, and evaluate it, too"},
       {"--model-ema-steps", integer(o.model_ema.steps, 1, kMostSteps), "Steps between its updates"},
       {"--model-ema-decay", real(o.model_ema.decay, kProbability, "P"),
        "Its decay, made less by samples and steps per update, more by epochs"}}};
}

flags::Group rate_flags(Options& o) {
  LrOptions& lr = o.lr_schedule;
  return {"Learning rate",
          {{"--lr-scheduler", one_of(lr.scheduler, lr_scheduler_names()), "Changes the rate from epoch to epoch"},
           also_called({"--decay-epochs"}, {"--lr-step-size", integer(lr.step_size, 1, kMostSamples),
                                            "Epochs between the steps of steplr"}),
           also_called({"--decay-milestones"},
                       {"--lr-milestones", rising(lr.milestones, 1, kMostSamples),
                        "Epochs before which multisteplr steps, counted from 0 behind the warm-up"}),
           also_called({"--decay-rate"}, {"--lr-gamma", real(lr.gamma, kNotNegative),
                                          "What steplr, multisteplr, exponentiallr and reducelronplateau multiply by"}),
           also_called({"--min-lr"}, {"--lr-min", real(lr.min, kNotNegative),
                                      "Where cosineannealinglr ends; least rate of reducelronplateau"}),
           also_called({"--patience-epochs"}, {"--lr-patience", integer(lr.patience, 0, kMostSamples),
                                               "Evaluations without a smaller loss that reducelronplateau bears"}),
           also_called({"--warmup-epochs"}, {"--lr-warmup-epochs", integer(lr.warmup_epochs, 0, kMostSamples),
                                             "Epochs before --lr-scheduler begins"}),
           {"--lr-warmup-method", one_of(lr.warmup_method, lr_warmup_names())},
           {"--lr-warmup-decay", real(lr.warmup_decay, kFactor), "Factor of --lr that the warm-up begins with"}}};
}

flags::Group arithmetic_flags(Options& o) {
  return {"State and arithmetic",
          {{"--seed", integer(o.seed, 0, kLargestSeed), "Of initial weights, sample order and dropout"},
           also_called({"--initial-checkpoint"},
                       {"--weights", text(o.weights, "FILE"),
                        "Start from these weights (safetensors, .pt), or torchvision's ResNet34_Weights.DEFAULT"}),
           {"--weights-map", text(o.weights_map, "THEIRS=OURS,..."),
            "Names in --weights that are others here, as 'backbone.*=*'; or a file with one a line"},
           {"--freeze", text(o.freeze, "PATTERN,..."), "Do not train the parameters of these names, as 'layer1.*'"},
           {"--save-weights", text(o.save_weights, "FILE"), "Write the final weights (safetensors)"},
           {"--save-ema-weights", text(o.save_ema_weights, "FILE"), "Write the average that --model-ema keeps"},
           {"--amp", or_alone("fp16", one_of(o.amp, amp_names())),
            "forward and backward in 16 bits where that is safe, weights in float32; fp16 scales the loss, and is "
            "meant where no name stands behind it"},
           {"--reduction", one_of(o.reduction, reduction_names()),
            "exact: the bits of one node over several, too; fast: fewer bytes where the nodes have uneven parts"},
           {"--compression", one_of(o.compression, compression_names()),
            "What gradients travel in between nodes, in 16 bits half the bytes; changes bits"},
           {"--zero1", or_alone("shares", one_of(o.zero1, zero1_names())),
            "Each of several nodes keeps a share of the optimizer's state, lost with it; copied: on the next one, too"},
           unrecorded({"--overlap-bytes", integer(o.wave_bytes, 0, kMostBytes),
                       "Over several nodes gradients go out while backward computes, whenever there are so many bytes; "
                       "0: behind it"}),
           {"--arithmetic", one_of(o.arithmetic, arithmetic_names()),
            "native: the fastest kernels of this CPU; portable: those of AVX2, with equal bits on other kinds of CPU"},
           {"--channels-last", on(o.channels_last),
            "Pictures and convolutions in channels-last memory format; changes bits, and mostly speed"},
           {"--fuse", on(o.fuse),
            "BatchNorm, ReLU and pooling as one layer where they follow each other, gradients of linear layers without "
            "copies; changes bits, and mostly speed"},
           {"--sync-bn", on(o.sync_bn), "BatchNorm over the batches of all processes; needs one shard per process"},
           {"--device", device(o.device),
            "What computes: the CPU; cuda: the GPU of the process's local rank; cuda:N: that one for all; auto: GPUs "
            "where they can be used"},
           {"--threads", integer(o.threads, 1, kMostThreads),
            "Computing threads per process; the count changes bits, so OMP_NUM_THREADS is ignored"},
           {"--bind-to", one_of(o.bind_to, bind_to_names()), "keep each process to cores of its own"},
           {"--timeout", real(o.timeout, kSeconds, "SECONDS"), "Longest wait for another process, or for a batch"},
           {"--stall-warning", real(o.stall_warning, kSecondsOrNone, "SECONDS"),
            "Say for whom the others wait when it lasts so long; 0: never"},
           unrecorded({"--no-check-calls", off(o.check_calls), "Do not compare what the processes call"})}};
}

flags::Group launcher_flags(Options& o) {
  LauncherOptions& l = o.launcher;
  return {"Launcher",
          {unrecorded({"--max-restarts", integer(o.max_restarts, 0, kMostRestarts),
                       "Go on after a failure, at most N times; only where lockstep starts the processes"}),
           unrecorded({"--grace-period", real(l.grace_period, kSeconds, "SECONDS"),
                       "From SIGTERM to SIGKILL when the run ends early", "10"}),
           unrecorded(
               {"--log-dir", text(l.log_dir, "DIR"), "Where log files of the processes go", "a new folder in TMPDIR"}),
           unrecorded({"-r, --redirects", text(l.redirects, "STREAMS"),
                       "To files: 0 none, 1 stdout, 2 stderr, 3 both; by rank: 0:3,1:2", "0"}),
           unrecorded({"-t, --tee", text(l.tee, "STREAMS"), "To files and to the console", "0"})}};
}

flags::Group output_flags(Options& o) {
  return {"Output",
          {also_called({"-p", "--log-interval"},
                       {"--print-freq", integer(o.print_freq, 1, kMostSteps), "Steps from one report to the next"}),
           unrecorded({"--output-dir", text(o.output_dir, "DIR"), "Write configuration and metrics here"}),
           unrecorded({"--timeline", text(o.timeline, "FILE"),
                       "Write when each process does what, for Chrome's and Perfetto's viewers"}),
           unrecorded({"--overwrite", on(o.overwrite), "Replace the run that --output-dir holds"}),
           {"--no-eval", off(o.eval), "Do not evaluate"},
           also_called({"-e", "--evaluate"}, {"--test-only", on(o.test_only), "Evaluate, and do not train"}),
           {"--eval-best", on(o.eval_best), "Evaluate the best checkpoint at the end; with --save-every"},
           {"--patience", integer(o.patience, 0, kMostSamples),
            "End after so many evaluations without a better --monitor", "0: do not"}}};
}

flags::Group checkpoint_flags(Options& o) {
  CheckpointOptions& c = o.checkpoints;
  return {"Checkpoints",
          {{"--save-every", save_every(c.save_every),
            "Steps, seconds or epochs from one checkpoint in --output-dir to the next; one at the end, too; 0: none"},
           {"--checkpoint-hist", integer(c.hist, 1, kMostRestarts), "How many stay, the newest; the best besides"},
           {"--checkpoint-best", integer(c.best, 1, kMostRestarts), "How many of the best stay, by --monitor"},
           also_called({"--eval-metric"}, {"--monitor", one_of(c.monitor, monitor_names()), "What makes one the best"}),
           {"--stop-on", signals(c.stop_on),
            "Signals to a process or the launcher at which the run saves and ends with exit code 75"},
           unrecorded({"--resume", text(c.resume, "NAME|PATH"),
                       "Go on from auto, last or best of --output-dir, or from a path; auto begins anew where there is "
                       "none"})}};
}

// They are too many to list.
std::string unknown_flag(const std::string& name, const std::vector<std::string>& names) {
  std::vector<std::string> words;
  for (const std::string& known : names)
    if (known.starts_with("--")) words.push_back(known.substr(2));
  const std::string meant = base::nearest(name.substr(std::min(name.find_first_not_of('-'), name.size())), words);
  const std::string advice = meant.empty() ? "--help lists what there is" : "did you mean --" + meant + "?";
  return "unknown flag " + name + ": " + advice;
}

}  // namespace

flags::Table table_of(Options& options) {
  const std::string& program = options.own.program;
  const std::string what = program.empty()
                               ? "Trains a built-in model on pictures or numbers, on one or more processes of this "
                                 "machine.\n"
                               : "Trains a model of its own or a built-in one. lockstep run -n N " + program +
                                     " starts it on N processes.\n";
  return {.usage = (program.empty() ? "lockstep train" : program) + " [options]",
          .about = what + "A dash and an underscore in a flag's name are alike. --fuse=0 is a switch that is off.\n",
          .groups = {job_flags(options), data_flags(options), transform_flags(options), batch_flags(options),
                     optimizer_flags(options), rate_flags(options), arithmetic_flags(options), output_flags(options),
                     checkpoint_flags(options), launcher_flags(options), script_flags()},
          .version = "lockstep " LOCKSTEP_VERSION "\n",
          .variables = "LOCKSTEP_",
          .unknown = unknown_flag};
}

}  // namespace lockstep::train
