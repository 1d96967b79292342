#include "lockstep/train/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/base/control_page.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kMostSamples = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostSteps = std::int64_t(1) << 40;  // a mark in the control page counts to 2^44
constexpr std::int64_t kMostMebibytes = std::int64_t(1) << 30;
constexpr std::int64_t kMostPixels = 1 << 14;
constexpr std::int64_t kMostShards = 1 << 16;
constexpr std::int64_t kMostThreads = 1024;
constexpr double kMostSeconds = 1e6;

[[noreturn]] void bad_value(const std::string& flag, const std::string& value, const std::string& wanted) {
  throw UsageError(flag + " '" + value + "': " + wanted);
}

std::int64_t integer(const std::string& flag, const std::string& value, std::int64_t least, std::int64_t most) {
  std::int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  const std::string range = "an integer from " + std::to_string(least) + " to " + std::to_string(most);
  if (error == std::errc::invalid_argument || stop != end) bad_value(flag, value, "not an integer; wanted " + range);
  if (error != std::errc() || number < least || number > most) bad_value(flag, value, "out of range; wanted " + range);
  return number;
}

/// A finite number for which `valid` holds; `wanted` says which these are.
double real(const std::string& flag, const std::string& value, const std::string& wanted, bool (*valid)(double)) {
  double number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error == std::errc::invalid_argument || stop != end) bad_value(flag, value, "not a number; wanted " + wanted);
  if (error != std::errc() || !std::isfinite(number) || !valid(number))
    bad_value(flag, value, "out of range; wanted " + wanted);
  return number;
}

std::string name(const std::string& flag, const std::string& value, const std::vector<std::string>& valid) {
  if (std::find(valid.begin(), valid.end(), value) == valid.end())
    throw UsageError(flag + ": " + base::unknown_name("value", value, valid));
  return value;
}

/// One command line in the making: CLI11 finds flags and values and writes the help, the
/// values are read here so that every error is one line that says what would be right.
class Parser {
 public:
  Parser() {
    app_.name("lockstep train");
    app_.set_help_flag("-h,--help", "Print this help and exit");
    app_.set_version_flag("--version", "lockstep " LOCKSTEP_VERSION);
    app_.get_formatter()->column_width(34);
    app_.allow_extras();
    add_job();
    add_input();
    add_batch();
    add_optimizer();
    add_reproducibility();
    add_output();
  }

  Parsed parse(std::vector<std::string> arguments);

 private:
  using Read = std::function<void(const std::string& flag, const std::string& value)>;

  void add(const std::string& names, const std::string& type, const std::string& help, const Read& read) {
    const std::string flag = names.substr(names.find("--"));
    const auto callback = [flag, read](const std::string& value) {
      if (value.empty() || value.rfind("--", 0) == 0) throw UsageError(flag + " needs a value (" + flag + " VALUE)");
      read(flag, value);
    };
    app_.add_option_function<std::string>(names, callback, help)->option_text(type)->group(group_);
  }

  /// A flag that takes an integer from `least` to `most`; T: int, int64 or an optional of one.
  template <class T>
  void add_integer(const std::string& names, const std::string& help, T& target, std::int64_t least,
                   std::int64_t most) {
    add(names, "N", help, [&target, least, most](const std::string& flag, const std::string& value) {
      const std::int64_t number = integer(flag, value, least, most);
      if constexpr (std::is_same_v<T, std::optional<int>> || std::is_same_v<T, int>)
        target = static_cast<int>(number);
      else
        target = number;
    });
  }

  void add_text(const std::string& names, const std::string& type, const std::string& help, std::string& target) {
    add(names, type, help, [&target](const std::string&, const std::string& value) { target = value; });
  }

  void add_name(const std::string& names, const std::string& help, std::string& target,
                const std::vector<std::string>& valid) {
    add(names, "NAME", base::join(valid, "|") + help,
        [&target, &valid](const std::string& flag, const std::string& value) { target = name(flag, value, valid); });
  }

  void add_job();
  void add_input();
  void add_batch();
  void add_optimizer();
  void add_reproducibility();
  void add_output();

  void normalise(std::string& argument) const;
  [[noreturn]] void refuse_unknown(const std::string& argument) const;
  std::vector<std::string> flag_names() const;
  void check_twice() const;
  void settle_momentum();
  void settle_transforms();
  bool given(const char* flag) const;
  void check_transforms() const;
  void check_combinations() const;

  CLI::App app_{
      "Trains a built-in model on image data, on one or more processes of this machine.\n"
      "A dash and an underscore in a flag's name are alike."};
  Options options_;
  std::optional<double> momentum_;
  std::string group_;
};

void Parser::add_job() {
  group_ = "Job";
  add_integer("-n,--nproc-per-node", "Processes on this machine [1]", options_.nproc_per_node, 1, base::kMaxLocalRanks);
  add_integer("--max-restarts", "Go on after a failure, at most N times; only where lockstep starts the processes [0]",
              options_.max_restarts, 0, 1'000'000);
  add_name("--model", " [convnet]", options_.model, model_names());
  add_name("--dataset", " [digits]; digits is drawn, not read", options_.dataset, dataset_names());
  add_text("--data-path", "DIR", "Folder with the data set's files", options_.data_path);
  add_integer("--epochs", "Passes over the data [1]", options_.epochs, 0, kMostSamples);
  add_integer("--max-steps", "End after N steps; alone it crosses epochs, with --epochs the first reached ends the run",
              options_.max_steps, 0, kMostSteps);
}

void Parser::add_input() {
  group_ = "Input";
  add_name("--transforms", " [what suits the data set]", options_.transforms, transform_names());
  const auto add_pixels = [this](const std::string& flag, const std::string& help, int& target) {
    add_integer(flag, help, target, 1, kMostPixels);
  };
  add_pixels("--train-crop-size", "Side of the pictures that the imagenet transforms cut out to train on [224]",
             options_.train_crop_size);
  add_pixels("--val-resize-size", "Smaller edge that they resize to for evaluation [256]", options_.val_resize_size);
  add_pixels("--val-crop-size", "Side of the middle that they evaluate on [224]", options_.val_crop_size);
  add_name("--interpolation", " [bilinear]", options_.interpolation, interpolation_names());
  add_name("--auto-augment", " [none]; with cifar and imagenet transforms", options_.auto_augment,
           auto_augment_names());
  add("--random-erase", "P", "Probability that a part is erased, with cifar and imagenet transforms [0]",
      [this](const std::string& flag, const std::string& value) {
        options_.random_erase = real(flag, value, "a number from 0 to 1", [](double x) { return x >= 0 && x <= 1; });
      });
  const auto add_alpha = [this](const std::string& name, const std::string& help, double& target) {
    add(name, "X", help, [&target](const std::string& flag, const std::string& value) {
      target = real(flag, value, "a number of 0 or more", [](double x) { return x >= 0; });
    });
  };
  add_alpha("--mixup-alpha", "Mix pairs of samples, alpha of the Beta distribution [0: do not]", options_.mixup_alpha);
  add_alpha("--cutmix-alpha", "Paste parts of samples into others; with --mixup-alpha one of both per step [0: do not]",
            options_.cutmix_alpha);
  add_text("--index-cache", "DIR", "Remember here what the folders of an imagefolder hold", options_.index_cache);
  add_integer("--cache-images",
              "MiB of decoded pictures that each process keeps of the training set, and as many to evaluate on [0]",
              options_.cache_images, 0, kMostMebibytes);
  add_integer("-j,--workers", "Threads per process that prepare batches [1]", options_.workers, 1, kMostThreads);
}

void Parser::add_batch() {
  group_ = "Batch";
  add_integer("-b,--batch-size", "Samples per process and step [100]", options_.batch_size, 1, kMostSamples);
  add_integer("--global-batch-size", "Samples per step [batch size x processes]", options_.global_batch_size, 1,
              kMostSamples);
  add_integer("--logical-shards", "Slices the global batch is cut into; fixes the bits of the result [processes]",
              options_.logical_shards, 1, kMostShards);
}

void Parser::add_optimizer() {
  group_ = "Optimizer";
  add_name("--opt", " [sgd]", options_.opt, optimizer_names());
  add("--lr", "X", "Learning rate [0.001]", [this](const std::string& flag, const std::string& value) {
    options_.lr = real(flag, value, "a number of 0 or more", [](double x) { return x >= 0; });
  });
  add("--momentum", "X", "For SGD [0; sgd_nesterov: 0.9]", [this](const std::string& flag, const std::string& value) {
    momentum_ = real(flag, value, "a number from 0 to less than 1", [](double x) { return x >= 0 && x < 1; });
  });
  add("--weight-decay", "X", "Weight decay [0]", [this](const std::string& flag, const std::string& value) {
    options_.weight_decay = real(flag, value, "a number of 0 or more", [](double x) { return x >= 0; });
  });
}

void Parser::add_reproducibility() {
  group_ = "State and arithmetic";
  add_integer("--seed", "Of initial weights, sample order and dropout [0]", options_.seed, 0,
              std::numeric_limits<std::int64_t>::max());
  add_text("--weights", "FILE", "Start from these weights (safetensors)", options_.weights);
  add_text("--save-weights", "FILE", "Write the final weights (safetensors)", options_.save_weights);
  add_name("--amp", " [none]; bf16: forward and backward in bfloat16 where that is safe, weights in float32",
           options_.amp, amp_names());
  app_.add_flag("--channels-last", options_.channels_last,
                "Pictures and convolutions in channels-last memory format; changes bits, and mostly speed")
      ->group(group_);
  add_integer("--threads", "Computing threads per process; the count changes bits, so OMP_NUM_THREADS is ignored [1]",
              options_.threads, 1, kMostThreads);
  add_name("--bind-to", ": keep each process to cores of its own [none]", options_.bind_to, bind_to_names());
  add("--timeout", "SECONDS", "Longest wait for another process, or for a batch [300]",
      [this](const std::string& flag, const std::string& value) {
        options_.timeout = real(flag, value, "seconds, more than 0 and at most 1000000",
                                [](double x) { return x > 0 && x <= kMostSeconds; });
      });
}

void Parser::add_output() {
  group_ = "Output";
  add_integer("--print-freq", "Steps from one report to the next [100]", options_.print_freq, 1, kMostSteps);
  add_text("--output-dir", "DIR", "Write configuration and metrics here", options_.output_dir);
  app_.add_flag("--overwrite", options_.overwrite, "Replace the run that --output-dir holds")->group(group_);
  app_.add_flag_function(
          "--no-eval", [this](std::int64_t) { options_.eval = false; }, "Do not evaluate")
      ->group(group_);
}

/// Underscores in a flag's name become dashes; the value behind '=' stays as it is.
void Parser::normalise(std::string& argument) const {
  if (argument.rfind("--", 0) != 0) return;
  const std::size_t name_end = std::min(argument.find('='), argument.size());
  std::replace(argument.begin(), argument.begin() + name_end, '_', '-');
  if (name_end == argument.size()) return;
  const std::string name = argument.substr(0, name_end);
  const CLI::Option* option = app_.get_option_no_throw(name);
  if (option && option->get_expected_max() == 0)
    throw UsageError(name + " takes no value, found '" + argument.substr(name_end + 1) + "'");
  // CLI11 would take the next argument for the missing value.
  if (name_end + 1 == argument.size()) throw UsageError(name + " needs a value, found none behind '='");
}

std::vector<std::string> Parser::flag_names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  return names;
}

void Parser::refuse_unknown(const std::string& argument) const {
  if (argument.rfind('-', 0) != 0)
    throw UsageError("unexpected argument '" + argument + "': every value follows a flag");
  const std::string flag = argument.substr(0, argument.find('='));
  const std::string meant =
      base::nearest(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())), flag_names());
  throw UsageError("unknown flag " + flag + ": " +
                   (meant.empty() ? "--help lists what there is" : "did you mean --" + meant + "?"));
}

void Parser::check_twice() const {
  for (const CLI::Option* option : app_.get_options())
    if (option->count() > 1)
      throw UsageError(option->get_name() + " is given " + std::to_string(option->count()) + " times");
}

void Parser::settle_momentum() {
  const bool nesterov = options_.opt == "sgd_nesterov";
  if (momentum_ && options_.opt.rfind("sgd", 0) != 0)
    throw UsageError("--momentum has no meaning for --opt " + options_.opt + ": it is for sgd and sgd_nesterov");
  options_.momentum = momentum_.value_or(nesterov ? 0.9 : 0.0);
  if (nesterov && options_.momentum == 0)
    throw UsageError("--momentum 0 with --opt sgd_nesterov: Nesterov's method needs a momentum above 0");
}

// Pictures of one channel and of three need other numbers.
void Parser::settle_transforms() {
  const bool grey = options_.dataset == "digits" || options_.dataset.ends_with("mnist");
  std::string& transforms = options_.transforms;
  if (transforms.empty()) transforms = grey ? "none" : options_.dataset == "imagefolder" ? "imagenet" : "cifar";
  if (grey ? transforms == "cifar" || transforms == "imagenet" : transforms == "mnist")
    throw UsageError("--transforms " + transforms + " with --dataset " + options_.dataset + ", whose pictures are " +
                     (grey ? "grey: none or mnist" : "in colour: none, cifar or imagenet"));
}

// Asked for and without effect would be a silent loss.
void Parser::check_transforms() const {
  const std::string& transforms = options_.transforms;
  const bool imagenet = transforms == "imagenet", cifar = transforms == "cifar";
  const bool policy = options_.auto_augment != "none";
  const auto refuse_unless = [&](bool useful, const char* flag, const std::string& reason) {
    if (!useful && given(flag)) throw UsageError(std::string(flag) + " has no meaning " + reason);
  };
  for (const char* flag : {"--train-crop-size", "--val-resize-size", "--val-crop-size"})
    refuse_unless(imagenet, flag, "for --transforms " + transforms + ": it is for imagenet");
  for (const char* flag : {"--val-resize-size", "--val-crop-size"})
    refuse_unless(options_.eval, flag, "with --no-eval");
  for (const char* flag : {"--auto-augment", "--random-erase", "--interpolation"})
    refuse_unless(imagenet || cifar, flag, "for --transforms " + transforms + ": it is for cifar and imagenet");
  refuse_unless(imagenet || policy, "--interpolation",
                "for --transforms cifar without --auto-augment: nothing is resized or turned");
  if (policy && options_.interpolation == "bicubic")
    throw UsageError("--interpolation bicubic with --auto-augment " + options_.auto_augment +
                     ": turning pictures knows only nearest and bilinear");
}

bool Parser::given(const char* flag) const { return app_.get_option(flag)->count() > 0; }

void Parser::check_combinations() const {
  for (const char* flag : {"--cache-images", "--index-cache"})
    if (given(flag) && options_.dataset != "imagefolder")
      throw UsageError(std::string(flag) + " with --dataset " + options_.dataset +
                       ", which is held in memory: it is for imagefolder");
  check_transforms();
  if (options_.dataset == "digits" && !options_.data_path.empty())
    throw UsageError("--data-path '" + options_.data_path +
                     "' with --dataset digits, which is drawn and reads no files: "
                     "add --dataset mnist or leave it out");
  if (options_.dataset != "digits" && options_.data_path.empty())
    throw UsageError("--dataset " + options_.dataset + " needs --data-path DIR, the folder with its files");
  if (options_.overwrite && options_.output_dir.empty()) throw UsageError("--overwrite needs --output-dir DIR");
}

Parsed Parser::parse(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) normalise(argument);
  std::reverse(arguments.begin(), arguments.end());  // the order CLI11 wants of a vector
  try {
    app_.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    return {.options = {}, .text = app_.help()};
  } catch (const CLI::CallForVersion& version) {
    return {.options = {}, .text = std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    check_twice();
    throw UsageError(error.what());
  }
  if (!app_.remaining().empty()) refuse_unknown(app_.remaining().front());
  check_twice();
  settle_momentum();
  settle_transforms();
  check_combinations();
  return {.options = options_, .text = ""};
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = {"mlp",      "mlp_dropout", "convnet",   "resnet18",      "resnet34",
                                                 "resnet50", "resnet101",   "resnet152", "resnet18_cifar"};
  return names;
}

const std::vector<std::string>& dataset_names() {
  static const std::vector<std::string> names = {"digits",   "mnist",           "fashion-mnist", "cifar10",
                                                 "cifar100", "cifar100-coarse", "imagefolder"};
  return names;
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"sgd", "sgd_nesterov", "adam", "adamw"};
  return names;
}

const std::vector<std::string>& transform_names() {
  static const std::vector<std::string> names = {"none", "mnist", "cifar", "imagenet"};
  return names;
}

const std::vector<std::string>& interpolation_names() {
  static const std::vector<std::string> names = {"nearest", "bilinear", "bicubic"};
  return names;
}

const std::vector<std::string>& auto_augment_names() {
  static const std::vector<std::string> names = {"none", "imagenet", "cifar10", "ra", "ta_wide"};
  return names;
}

const std::vector<std::string>& amp_names() {
  static const std::vector<std::string> names = {"none", "bf16"};
  return names;
}

const std::vector<std::string>& bind_to_names() {
  static const std::vector<std::string> names = {"none", "core"};
  return names;
}

Parsed parse_options(int argc, const char* const* argv) {
  Parser parser;
  return parser.parse(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}

}  // namespace lockstep::train
