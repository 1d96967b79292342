#include "lockstep/train/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <regex>

#include "lockstep/base/error.h"
#include "lockstep/data/sets/known_sets.h"
#include "lockstep/flags/wrap.h"
#include "lockstep/train/launcher_flags.h"
#include "lockstep/train/options_table.h"
#include "tests/unit/train/parsed_options.h"

namespace lockstep::train {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A terminal of a hundred columns has that many lines at least when it fills a screen.
TEST(Options, HelpOfAGroupFitsOneScreen) {
  Options options;
  const flags::Table table = table_of(options);
  ASSERT_GT(table.groups.size(), 1u);
  for (const flags::Group& group : table.groups) {
    std::string name;
    for (const char letter : group.title) name += letter == ' ' ? '-' : char(std::tolower(letter));
    const std::string text = flags::wrapped(flags::help(table, name), 100);
    EXPECT_THAT(text, ::testing::StartsWith(group.title + ":\n"));
    EXPECT_LE(std::ranges::count(text, '\n'), 40) << text;
  }
}

TEST(Options, DefaultsAreTheDocumentedOnes) {
  const Options o = options({});
  EXPECT_FALSE(o.nproc_per_node || o.epochs || o.max_steps || o.batch_size || o.global_batch_size || o.logical_shards);
  EXPECT_EQ(o.processes(), 1);
  EXPECT_EQ(o.model, "convnet");
  EXPECT_EQ(o.dataset, "digits");
  EXPECT_EQ(o.opt, "sgd");
  EXPECT_EQ(o.lr, 1e-3);
  EXPECT_EQ(o.momentum, 0);
  EXPECT_EQ(o.weight_decay, 0);
  EXPECT_EQ(o.seed, 0);
  EXPECT_EQ(o.threads, 1);
  EXPECT_EQ(o.amp, "none");
  EXPECT_FALSE(o.channels_last);
  EXPECT_FALSE(o.sync_bn);
  EXPECT_EQ(o.reduction, "exact");
  EXPECT_EQ(o.compression, "none");
  EXPECT_EQ(o.zero1, "none");
  EXPECT_EQ(o.wave_bytes, 2'097'152);
  EXPECT_EQ(o.parallel, "ddp");
  EXPECT_FALSE(o.replicas);
  EXPECT_EQ(o.timeout, 300);
  EXPECT_EQ(o.print_freq, 100);
  EXPECT_EQ(o.data_path + o.weights + o.save_weights + o.output_dir, "");
  EXPECT_FALSE(o.overwrite);
  EXPECT_TRUE(o.eval);
}

TEST(Options, EveryFlagArrives) {
  const Options o = options({"-n",
                             "3",
                             "--model",
                             "mlp_dropout",
                             "--dataset",
                             "mnist",
                             "--data-path",
                             "d_d",
                             "--epochs",
                             "4",
                             "--max-steps",
                             "5",
                             "-b",
                             "6",
                             "--global-batch-size",
                             "18",
                             "--logical-shards",
                             "9",
                             "--opt",
                             "sgd_nesterov",
                             "--lr",
                             "1e-4",
                             "--momentum",
                             "0.5",
                             "--weight-decay",
                             "0.01",
                             "--seed",
                             "7",
                             "--weights",
                             "w",
                             "--save-weights",
                             "s",
                             "--threads",
                             "2",
                             "--amp",
                             "bf16",
                             "--channels-last",
                             "--sync-bn",
                             "--reduction",
                             "fast",
                             "--compression",
                             "fp16",
                             "--zero1",
                             "copied",
                             "--overlap-bytes",
                             "1000",
                             "--bind-to",
                             "core",
                             "--timeout",
                             "1.5",
                             "--print-freq",
                             "8",
                             "--output-dir",
                             "out",
                             "--overwrite",
                             "--no-eval"});
  EXPECT_EQ(o.nproc_per_node, 3);
  EXPECT_EQ(o.model, "mlp_dropout");
  EXPECT_EQ(o.dataset, "mnist");
  EXPECT_EQ(o.data_path, "d_d");
  EXPECT_EQ(o.epochs, 4);
  EXPECT_EQ(o.max_steps, 5);
  EXPECT_EQ(o.batch_size, 6);
  EXPECT_EQ(o.global_batch_size, 18);
  EXPECT_EQ(o.logical_shards, 9);
  EXPECT_EQ(o.opt, "sgd_nesterov");
  EXPECT_EQ(o.lr, 1e-4);
  EXPECT_EQ(o.momentum, 0.5);
  EXPECT_EQ(o.weight_decay, 0.01);
  EXPECT_EQ(o.seed, 7);
  EXPECT_EQ(o.weights, "w");
  EXPECT_EQ(o.save_weights, "s");
  EXPECT_EQ(o.threads, 2);
  EXPECT_EQ(o.amp, "bf16");
  EXPECT_TRUE(o.channels_last);
  EXPECT_TRUE(o.sync_bn);
  EXPECT_EQ(o.reduction, "fast");
  EXPECT_EQ(o.compression, "fp16");
  EXPECT_EQ(o.zero1, "copied");
  EXPECT_EQ(o.wave_bytes, 1000);
  EXPECT_EQ(o.bind_to, "core");
  EXPECT_EQ(o.timeout, 1.5);
  EXPECT_EQ(o.print_freq, 8);
  EXPECT_EQ(o.output_dir, "out");
  EXPECT_TRUE(o.overwrite);
  EXPECT_FALSE(o.eval);
}

TEST(Options, DashAndUnderscoreAreAlikeInNamesOnly) {
  EXPECT_EQ(options({"--batch_size", "7"}).batch_size, 7);
  EXPECT_EQ(options({"--batch-size=7"}).batch_size, 7);
  EXPECT_EQ(options({"--nproc_per_node=2"}).nproc_per_node, 2);
  EXPECT_EQ(options({"--output_dir=runs/a_b"}).output_dir, "runs/a_b");
  EXPECT_EQ(options({"--model=mlp_dropout"}).model, "mlp_dropout");
  EXPECT_FALSE(options({"--no_eval"}).eval);
  EXPECT_EQ(options({"-b7"}).batch_size, 7);
}

TEST(Options, MomentumFollowsTheOptimizer) {
  EXPECT_EQ(options({"--opt", "sgd_nesterov"}).momentum, 0.9);
  EXPECT_EQ(options({"--momentum", "0.3", "--opt", "sgd"}).momentum, 0.3);
  EXPECT_THAT(refusal({"--opt", "adam", "--momentum", "0.9"}), HasSubstr("no meaning for --opt adam"));
  EXPECT_THAT(refusal({"--opt", "sgd_nesterov", "--momentum", "0"}), HasSubstr("above 0"));
}

TEST(Options, HelpAndVersionComeBackAsText) {
  EXPECT_THAT(parse({"--help"}).text, HasSubstr("lockstep train"));
  EXPECT_THAT(parse({"-h"}).text, HasSubstr("--logical-shards"));
  EXPECT_TRUE(std::regex_match(parse({"--version"}).text, std::regex("lockstep \\d+\\.\\d+\\.\\d+\n")));
}

TEST(Options, DefaultsAreInTheHelp) {
  const std::string help = parse({"--help"}).text;
  for (const char* line : {"Learning rate (also --learning-rate) [0.001]\n", "vit_b_16 (also -a, --arch) [convnet]\n",
                           "Passes over the data [1]\n", "Samples per process and step [100]\n",
                           "[batch size x processes x --grad-accum-steps]\n",
                           "auto_augment,resize=224x224,to_tensor [what suits the data set]\n",
                           "For sgd, lars and rmsprop [0; sgd_nesterov: 0.9]\n", "or for a batch [300]\n",
                           "Write configuration and metrics here\n", "Do not evaluate\n"})
    EXPECT_THAT(help, HasSubstr(line));
}

TEST(Options, TransformsFollowTheDataSet) {
  const auto transforms = [](const char* dataset) {
    return parse({"--dataset", dataset, "--data-path", "x"}).options.transforms;
  };
  EXPECT_EQ(parse({}).options.transforms, "none");
  EXPECT_EQ(transforms("mnist"), "none");
  EXPECT_EQ(transforms("cifar10"), "cifar");
  EXPECT_EQ(transforms("imagefolder"), "imagenet");
  for (const data::KnownSet& set : data::known_sets()) {
    EXPECT_THAT(transform_names(), Contains(set.transforms));
    if (data::is_drawn(set)) continue;  // takes no --data-path
    EXPECT_EQ(options({"--dataset", set.name.c_str(), "--data-path", "x", "--model", "linear"}).transforms,
              set.transforms);
  }
  EXPECT_EQ(parse({"--transforms", "mnist"}).options.transforms, "mnist");
}

TEST(OptionErrors, TransformsThatDoNotFitThePictures) {
  EXPECT_EQ(refusal({"--transforms", "cifar"}),
            "--transforms cifar with --dataset digits, whose pictures are grey: none or mnist");
  EXPECT_EQ(refusal({"--dataset", "cifar10", "--data-path", "x", "--transforms", "mnist"}),
            "--transforms mnist with --dataset cifar10, whose pictures are in colour: none, cifar or imagenet");
}

TEST(OptionErrors, TransformFlagsWithoutEffect) {
  EXPECT_EQ(refusal({"--train-crop-size", "64"}),
            "--train-crop-size has no meaning for --transforms none: it is for imagenet");
  EXPECT_EQ(refusal({"--dataset", "cifar10", "--data-path", "x", "--val-crop-size", "64"}),
            "--val-crop-size has no meaning for --transforms cifar: it is for imagenet");
  EXPECT_EQ(
      refusal({"--dataset", "cifar10", "--data-path", "x", "--interpolation", "nearest"}),
      "--interpolation has no meaning for --transforms cifar without --auto-augment: nothing is resized or turned");
  EXPECT_EQ(refusal({"--dataset", "imagefolder", "--data-path", "x", "--val-crop-size", "64", "--no-eval"}),
            "--val-crop-size has no meaning with --no-eval");
  const std::vector<const char*> folder = {"--dataset", "imagefolder", "--data-path", "x", "--interpolation"};
  const auto with = [&](std::vector<const char*> more) {
    more.insert(more.begin(), folder.begin(), folder.end());
    return more;
  };
  for (const char* how : {"nearest-exact", "box", "hamming", "lanczos"})
    EXPECT_EQ(options(with({how})).interpolation, how);
  EXPECT_EQ(refusal(with({"lanczos", "--auto-augment", "ra"})),
            "--interpolation lanczos with a policy that turns pictures: nearest, bilinear or bicubic");
  EXPECT_EQ(refusal({"--random-erase", "0.1"}),
            "--random-erase has no meaning for --transforms none: it is for cifar and imagenet");
  EXPECT_THAT(refusal({"--dataset", "cifar10", "--data-path", "x", "--random-erase", "1.5"}),
              HasSubstr("'1.5': out of range; wanted a number from 0 to 1"));
}

TEST(OptionErrors, MixingAndCaching) {
  EXPECT_EQ(parse({"--mixup-alpha", "0.2", "--cutmix-alpha", "1"}).options.mixup_alpha, 0.2);
  EXPECT_EQ(refusal({"--mixup-alpha", "-1"}), "--mixup-alpha '-1': out of range; wanted a number of 0 or more");
  EXPECT_EQ(refusal({"--cache-images", "100"}),
            "--cache-images has no meaning for --dataset digits, which is held in memory: it is for imagefolder");
}

TEST(OptionErrors, UnknownFlagsNameTheNearest) {
  EXPECT_EQ(refusal({"--optt", "adam"}), "unknown flag --optt: did you mean --opt?");
  EXPECT_EQ(refusal({"--batchsize=3"}), "unknown flag --batchsize: did you mean --batch-size?");
  EXPECT_EQ(refusal({"--nproc", "2"}), "unknown flag --nproc: did you mean --nproc-per-node?");
  EXPECT_EQ(refusal({"--frobnicate"}), "unknown flag --frobnicate: --help lists what there is");
  EXPECT_EQ(refusal({"-y"}), "unknown flag -y: --help lists what there is");
  EXPECT_THAT(refusal({"train.py"}), HasSubstr("unexpected argument 'train.py'"));
}

TEST(OptionErrors, UnknownValuesNameTheNearest) {
  EXPECT_THAT(
      refusal({"--model", "convnot"}),
      StartsWith("--model: unknown value 'convnot': did you mean 'convnet'? (one of linear, mlp, mlp_dropout, "));
  EXPECT_THAT(refusal({"--model", "vit-b-16"}), HasSubstr("did you mean 'vit_b_16'?"));
  EXPECT_THAT(refusal({"--dataset", "minst"}), HasSubstr("did you mean 'mnist'?"));
  EXPECT_THAT(refusal({"--opt", "rmsprob"}), HasSubstr("did you mean 'rmsprop'? (one of sgd, sgd_nesterov, adam, "));
}

TEST(OptionErrors, NumbersThatAreNone) {
  EXPECT_EQ(refusal({"--lr", "1e-3x"}), "--lr '1e-3x': not a number; wanted a number of 0 or more");
  EXPECT_THAT(refusal({"--lr", "nan"}), HasSubstr("out of range"));
  EXPECT_THAT(refusal({"--lr", "inf"}), HasSubstr("out of range"));
  EXPECT_THAT(refusal({"--lr", "1e999"}), HasSubstr("out of range"));
  EXPECT_EQ(refusal({"--epochs", "1.5"}), "--epochs '1.5': not an integer; wanted an integer from 0 to 2147483647");
  EXPECT_THAT(refusal({"--seed", "99999999999999999999"}), HasSubstr("out of range"));
  EXPECT_THAT(refusal({"--batch-size", "-5"}), HasSubstr("--batch-size '-5': out of range; wanted an integer from 1"));
  EXPECT_THAT(refusal({"--batch-size", ""}), HasSubstr("--batch-size needs a value"));
  EXPECT_THAT(refusal({"--batch-size="}), HasSubstr("--batch-size needs a value"));
  EXPECT_THAT(refusal({"--batch-size= ", "4"}), HasSubstr("not an integer"));
}

TEST(OptionErrors, RangesAreChecked) {
  for (const char* flag : {"--nproc-per-node", "--batch-size", "--global-batch-size", "--logical-shards", "--threads",
                           "--print-freq", "--timeout"})
    EXPECT_THAT(refusal({flag, "0"}), HasSubstr(std::string(flag) + " '0': out of range")) << flag;
  for (const char* flag : {"--lr", "--weight-decay", "--momentum", "--epochs", "--max-steps", "--seed"})
    EXPECT_THAT(refusal({flag, "-1"}), HasSubstr(std::string(flag) + " '-1': out of range")) << flag;
  EXPECT_THAT(refusal({"--momentum", "1"}), HasSubstr("less than 1"));
  EXPECT_THAT(refusal({"-n", "513"}), HasSubstr("from 1 to 512"));
  EXPECT_EQ(options({"--epochs", "0"}).epochs, 0);
  EXPECT_EQ(options({"--max-steps", "0"}).max_steps, 0);
  EXPECT_EQ(options({"--lr", "0"}).lr, 0);
}

TEST(OptionErrors, MissingValuesAndRepetition) {
  EXPECT_THAT(refusal({"--epochs"}), HasSubstr("--epochs"));
  EXPECT_THAT(refusal({"--output-dir", "--overwrite"}), HasSubstr("--output-dir needs a value"));
  EXPECT_EQ(refusal({"--epochs", "1", "--epochs", "2"}), "--epochs is given 2 times");
  EXPECT_EQ(refusal({"--no_eval=maybe"}), "--no-eval takes no value but 0 or 1, found 'maybe'");
}

TEST(OptionErrors, FlagsThatDoNotGoTogether) {
  EXPECT_THAT(refusal({"--dataset", "mnist"}), HasSubstr("needs --data-path"));
  EXPECT_THAT(refusal({"--data-path", "x"}), HasSubstr("digits"));
  EXPECT_THAT(refusal({"--overwrite"}), HasSubstr("--output-dir"));
}

TEST(LauncherFlags, AreNoWorkers) {
  const auto refusal_of = [](const std::vector<const char*>& flags, const std::string& launcher) -> std::string {
    try {
      require_no_launcher_flags(options(flags), launcher, 2);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal_of({"--max-restarts", "3"}, "alone"),
            "--max-restarts 3 is the launcher's, and this worker was started without one: use lockstep train");
  EXPECT_EQ(refusal_of({"-n", "2"}, "alone"),
            "--nproc-per-node 2 is the launcher's, and this worker was started without one: use lockstep train");
  EXPECT_EQ(refusal_of({"--max-restarts", "3"}, "torchrun"),
            "--max-restarts 3 is the launcher's, and torchrun has started this job: give it to torchrun");
  EXPECT_EQ(refusal_of({"-n", "3"}, "mpirun"),
            "--nproc-per-node 3 is the launcher's, and mpirun has started 2 processes already: leave it out");
  EXPECT_EQ(refusal_of({"-n", "gpu"}, "torchrun"),
            "--nproc-per-node gpu is the launcher's, and torchrun has started 2 processes already: leave it out");
  EXPECT_EQ(refusal_of({"--max-restarts", "0"}, "alone"), "");
  // A recipe says how many processes there usually are; who has started others means that.
  EXPECT_EQ(refusal_of({"--recipe", "mnist-distributed", "--synthetic"}, "torchrun"), "");
  EXPECT_EQ(refusal_of({"--recipe", "mnist-single", "--synthetic"}, "alone"), "");
  // And how often it is started again, which another launcher decides; nobody would do it for a process alone.
  EXPECT_EQ(refusal_of({"--recipe", "mnist-torchrun", "--output-dir", "run", "--synthetic"}, "torchrun"), "");
  EXPECT_EQ(refusal_of({"--recipe", "mnist-torchrun", "--output-dir", "run", "--synthetic", "--max-restarts", "3"},
                       "torchrun"),
            "--max-restarts 3 is the launcher's, and torchrun has started this job: give it to torchrun");
  EXPECT_EQ(refusal_of({"--recipe", "mnist-torchrun", "--output-dir", "run", "--synthetic", "-n", "1"}, "alone"),
            "--max-restarts 3 is the launcher's, and this worker was started without one: use lockstep train");
  EXPECT_THAT(refusal_of({"--recipe", "mnist-distributed", "--synthetic"}, "alone"), HasSubstr("--nproc-per-node 2"));
}

TEST(Options, TimeMayBeLimited) {
  EXPECT_EQ(options({"--max-time", "90.5"}).max_time, 90.5);
  EXPECT_THAT(refusal({"--max-time", "0"}), HasSubstr("--max-time '0'"));
  EXPECT_THAT(refusal({"--max-time", "1h"}), HasSubstr("--max-time '1h'"));
  EXPECT_THAT(refusal({"--test-only", "--max-time", "5"}), HasSubstr("--max-time has no meaning with --test-only"));
}

}  // namespace
}  // namespace lockstep::train
