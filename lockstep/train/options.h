#pragma once

// The flags of `lockstep train`, parsed and checked. Without libtorch, so that the command
// reports a wrong flag once, in milliseconds, before any worker starts; the workers parse
// the same arguments again. What depends on the world or on the data is checked by
// plan_batch() in batch_plan.h. Pure functions, thread-safe. The rows of the flags: options_table.h.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/sets/known_sets.h"
#include "lockstep/train/options_checkpoints.h"

namespace lockstep::train {

/// How the rate goes, as in torchvision's reference trainer, which counts epochs.
struct LrOptions {
  std::string scheduler = "constant";  ///< one of lr_scheduler_names()
  std::int64_t step_size = 30;         ///< of steplr: epochs from one step to the next, >= 1
  std::vector<std::int64_t>
      milestones;                  ///< of multisteplr: epochs, from 0 behind the warm-up; before each the rate falls
  double gamma = 0.1;              ///< what steplr, multisteplr and exponentiallr multiply by, >= 0
  double min = 0;                  ///< where cosineannealinglr ends, and below which no plateau leads, >= 0
  std::int64_t patience = 10;      ///< of reducelronplateau: evaluations that are borne, >= 0
  std::int64_t warmup_epochs = 0;  ///< >= 0; the scheduler counts from their end
  std::string warmup_method = "constant";  ///< one of lr_warmup_names()
  double warmup_decay = 0.01;              ///< factor of the rate with which the warm-up begins, (0, 1]
};

/// Whether evaluations decide on the rate (judge.h).
inline bool is_plateau(const LrOptions& options) { return options.scheduler == "reducelronplateau"; }

/// The running average of the weights, as in torchvision's reference trainer.
struct ModelEmaOptions {
  bool on = false;
  std::int64_t steps = 32;  ///< from one update to the next, >= 1
  double decay = 0.99998;   ///< [0, 1], of one sample and epoch: see ema_of()
};

/// The names that a program adds to the built-in ones (additions.h).
struct OwnNames {
  std::string program;               ///< what --help calls it; empty: it is `lockstep train`
  std::vector<std::string> models;   ///< what --model takes besides; the first is its default
  std::vector<data::KnownSet> sets;  ///< the same of --dataset
};

/// What else is for our launcher, which reads it as `lockstep run` does; empty: its defaults.
struct LauncherOptions {
  std::string log_dir;                 ///< folder of the workers' log files
  std::string redirects, tee;          ///< which streams go there, and which to the console, too
  std::optional<double> grace_period;  ///< seconds from SIGTERM to SIGKILL, > 0
};

/// What `lockstep train` was asked to do. An optional without a value: the flag was not
/// given, which for these flags differs from giving the default.
struct Options {
  OwnNames own;        ///< what the program that is run knows besides; no flag
  std::string recipe;  ///< a known job whose flags hold where nobody gives others (options_recipes.h); empty: none
  std::string config;  ///< a file of flags that goes before the recipe; empty: none
  bool by_environment = false;        ///< variables LOCKSTEP_... have given flags
  std::vector<std::string> left_out;  ///< flags of recipe and config that have no meaning beside stronger ones; no flag
  std::optional<int> nproc_per_node;  ///< processes on this node; default 1, or torchrun's. See processes()
  bool nproc_by_gpus = false;         ///< as many as this node has GPUs; our launcher makes it nproc_per_node
  bool nproc_by_file = false;         ///< the number stands in a recipe or --config: another launcher's goes before it

  std::string parallel = "ddp";   ///< one of parallel_names(): processes, or replicas in one
  std::optional<int> replicas;    ///< of dp, of the model in one process, >= 1
  int max_restarts = 0;           ///< how often our launcher starts all processes again after a failure
  bool restarts_by_file = false;  ///< as nproc_by_file
  LauncherOptions launcher;

  std::string model = "convnet";   ///< one of model_names(), or of own.models
  std::string dataset = "digits";  ///< one of data::set_names(), or of own.sets
  std::string data_path;           ///< folder of the data set's files, or a table's file; empty where there are none
  bool download = false;        ///< bring the set's files into data_path first, by default a folder of the user's cache
  std::string download_mirror;  ///< from where; empty: the well-known addresses
  std::string train_split = "train";  ///< the part of data_path to train on
  std::string val_split;              ///< the part to evaluate on; empty: val, or test where there is no val
  std::string test_split;             ///< the part that eval_best looks at; empty: that evaluated on
  std::string target;                 ///< columns of a table with the targets; empty: the last one
  std::string columns;                ///< those with the features; empty: all others
  bool slice_rows = false;            ///< of a csv or csv-images: each shard trains on rows that follow each other
  double val_fraction = 0.2;          ///< of the rows of a single file, to evaluate on; (0, 1)

  std::optional<std::int64_t> epochs;             ///< passes over the data, >= 0; default 1. See steps_in_run()
  std::optional<std::int64_t> max_steps;          ///< optimizer updates at most, >= 0; default no limit
  std::optional<double> max_time;                 ///< seconds, reading the data included, > 0; default no limit
  std::optional<std::int64_t> batch_size;         ///< samples per process and step, >= 1; default 100
  std::optional<std::int64_t> global_batch_size;  ///< samples per step; default batch size x world size
  std::optional<int> logical_shards;              ///< slices of the global batch (S), >= 1; default the world size
  int grad_accum_steps = 1;                       ///< batches per process and step, >= 1, each a logical shard

  std::string opt = "sgd";  ///< one of optimizer_names()
  double lr = 1e-3;         ///< learning rate, finite, >= 0
  double momentum = 0;      ///< [0, 1), of those that take one (options_optimizers.h), whose own it is when not given
  double weight_decay = 0;  ///< finite, >= 0; decoupled for adamw, lamb and lion, an L2 term for the others
  std::optional<double> norm_weight_decay;  ///< of the parameters of normalisation layers; default weight_decay
  std::optional<double> bias_weight_decay;  ///< of biases, those of normalisation layers too; default weight_decay
  std::optional<double> transformer_embedding_decay;  ///< of class tokens and the like; default weight_decay
  std::optional<double> clip_grad_norm;               ///< the largest 2-norm of all gradients, > 0; default no limit
  std::string loss = "cross_entropy";                 ///< one of loss_names(); of numbers mse unless given
  std::vector<double> class_weights;  ///< of the cross entropy to train by, one for each class; empty: all 1
  double label_smoothing = 0;         ///< [0, 1]; of the loss to train by
  LrOptions lr_schedule;
  ModelEmaOptions model_ema;
  CheckpointOptions checkpoints;

  std::int64_t seed = 0;         ///< >= 0; initial weights, sample order, dropout
  std::string weights;           ///< file to start from, safetensors or .pt, by torchvision's name, too; empty: initial
                                 ///< weights of the seed
  std::string weights_map;       ///< other names for its tensors (checkpoint/files/name_map.h); empty: none
  std::string head;              ///< layers in place of the last one, as "512,relu,3"; empty: it stays
  std::string freeze;            ///< patterns of parameters that are not trained, with commas between; empty: none
  std::string save_weights;      ///< safetensors file to write at the end; empty: none
  std::string save_ema_weights;  ///< the same for the average of the weights

  bool cache_dataset = false;  ///< index_cache is in the user's cache
  std::string index_cache;     ///< folder where the contents of picture folders are remembered; empty: none
  std::string transforms;      ///< one of transform_names() or a list; default: what the data set's tutorials do
  int train_crop_size = 224;   ///< of the ImageNet transforms, as the two below
  int val_resize_size = 256;
  int val_crop_size = 224;
  std::string interpolation = "bilinear";  ///< of resizing and turning; one of interpolation_names()
  std::string auto_augment = "none";       ///< one of auto_augment_names(); for the CIFAR and ImageNet transforms
  int ra_magnitude = 9;                    ///< of the policy ra, 0 … 30
  int augmix_severity = 3;                 ///< of the policy augmix, 1 … 10
  double random_erase = 0;                 ///< probability, [0, 1]; for the same
  double mixup_alpha = 0;                  ///< of MixUp's Beta distribution, >= 0; 0: none
  double cutmix_alpha = 0;                 ///< of CutMix's
  std::int64_t cache_images = 0;           ///< MiB of decoded pictures that a process keeps, >= 0
  bool ra_sampler = false;   ///< repeated augmentation: each sample of an epoch ra_reps times, other ones not
  std::int64_t ra_reps = 3;  ///< >= 1
  int workers = 1;           ///< threads per process that prepare batches, >= 1

  std::string device = "cpu";         ///< what the model computes on (device/choice.h)
  std::string amp = "none";           ///< mixed precision, one of amp_names()
  bool channels_last = false;         ///< pictures and convolutions in channels-last memory format
  bool fuse = false;                  ///< BatchNorm, ReLU and pooling as one layer (nn/fuse.h)
  bool sync_bn = false;               ///< BatchNorm over the batches of all processes
  std::string reduction = "exact";    ///< one of reduction_names(): where nodes add up their gradients
  std::string compression = "none";   ///< one of compression_names(): in what gradients travel between nodes
  std::string zero1 = "none";         ///< one of zero1_names(): whether nodes share out the optimizer's state
  std::int64_t wave_bytes = 2 << 20;  ///< DataParallelOptions::overlap_bytes, >= 0; changes no bit
  std::string arithmetic = "native";  ///< one of arithmetic_names(): which kernels of libtorch compute
  int threads = 1;                    ///< computing threads per process, >= 1; part of the arithmetic, it changes bits
  std::string bind_to = "none";       ///< one of bind_to_names(): whether a process keeps to cores of its own
  double timeout = 300;               ///< seconds that a rank waits for the others, > 0
  double stall_warning = 10;          ///< seconds after which it is said for whom; 0: never
  bool check_calls = true;            ///< compare what the processes call (--no-check-calls: false)
  std::int64_t print_freq = 100;      ///< steps from one train event to the next, >= 1

  std::string output_dir;  ///< run directory; empty: no files
  std::string timeline;    ///< file of what each rank does when (parallel/timeline.h); empty: none
  bool overwrite = false;  ///< replace the run that output_dir holds
  bool eval = true;        ///< evaluate after each epoch (--no-eval: false)
  bool test_only = false;  ///< evaluate, and do not train
  bool eval_best = false;  ///< evaluate the best checkpoint at the end
  bool synthetic = false;  ///< pictures made of nothing in the data set's place, in their shape
  std::optional<std::int64_t> limit_train_batches;  ///< steps of an epoch at most, >= 1
  std::optional<std::int64_t> limit_val_batches;    ///< chunks of the evaluation at most, >= 1
  bool fast_dev_run = false;  ///< one step and one chunk of the evaluation, nothing saved: does it run at all?
  std::int64_t patience = 0;  ///< evaluations without a better result after which the run ends; 0: it does not

  /// Worker processes to start on this node: what was asked for, else 1.
  int processes() const { return nproc_per_node.value_or(1); }
};

/// The row of options.dataset. UsageError that names the nearest for a name that there is not.
const data::KnownSet& set_of(const Options& options);

/// Whether options.model is the program's own.
bool is_own_model(const Options& options);

/// Whether the targets are numbers, not classes.
bool is_regression(const Options& options);

/// Valid values of --loss.
const std::vector<std::string>& loss_names();

/// The error of replicas whose number nothing says.
inline constexpr const char* kReplicasMissing = "--parallel dp needs --replicas N, for how many the batch is cut";

/// Whether one process trains by replicas.
inline bool is_replicated(const Options& options) { return options.parallel == "dp"; }

/// Valid values of --parallel, --model, --opt, --lr-scheduler, --lr-warmup-method, --transforms, --interpolation,
/// --auto-augment, --amp, --reduction, --compression, --zero1, --arithmetic and --bind-to.
const std::vector<std::string>& parallel_names();
const std::vector<std::string>& model_names();
const std::vector<std::string>& optimizer_names();
const std::vector<std::string>& lr_scheduler_names();
const std::vector<std::string>& lr_warmup_names();
const std::vector<std::string>& transform_names();
const std::vector<std::string>& interpolation_names();
const std::vector<std::string>& auto_augment_names();
const std::vector<std::string>& amp_names();
const std::vector<std::string>& reduction_names();
const std::vector<std::string>& compression_names();
const std::vector<std::string>& zero1_names();
const std::vector<std::string>& arithmetic_names();
const std::vector<std::string>& bind_to_names();

/// Options, or a text that was asked for instead (--help, --version).
struct Parsed {
  Options options;
  std::string text;  ///< not empty: print it to stdout and exit 0; `options` means nothing then
};

/// Parses the flags argv[1] … argv[argc - 1]; argv[0] is skipped. A dash and an underscore
/// within a flag's name are alike, `--flag value` and `--flag=value` too. What they leave open, the environment says
/// (LOCKSTEP_MODEL for --model), then the file of --config, then --recipe; what has no meaning there only beside what
/// was given is left out. `own`: what the program adds.
/// Throws UsageError for the first thing that is wrong: one line with the flag, the value
/// found and what would be right.
Parsed parse_options(int argc, const char* const* argv, const OwnNames& own = {});

/// What config.json says of a run's options: a JSON object, the flags' names with underscores, values as given or by
/// default (null: there is none). Where the run takes place is left out.
std::string options_json(Options options);

/// Those of them that differ from their defaults, as a command line has them.
std::string options_as_flags(Options options);

}  // namespace lockstep::train
