// The lists of flags, which users and readers of config.json rely on, and the flags of torchvision's trainer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/unit/train/parsed_options.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

TEST(Options, FlagsOfTorchvisionsTrainerArrive) {
  const Options o = options({"--norm-weight-decay",
                             "0",
                             "--transformer-embedding-decay",
                             "0.25",
                             "--bias-weight-decay",
                             "0.5",
                             "--clip-grad-norm",
                             "2",
                             "--label-smoothing",
                             "0.1",
                             "--grad-accum-steps",
                             "3",
                             "--lr-gamma",
                             "0.2",
                             "--lr-warmup-epochs",
                             "5",
                             "--lr-warmup-method",
                             "linear",
                             "--lr-warmup-decay",
                             "0.2",
                             "--lr-scheduler",
                             "multisteplr",
                             "--lr-milestones",
                             "60,120,160",
                             "--model-ema",
                             "--model-ema-steps",
                             "8",
                             "--model-ema-decay",
                             "0.9",
                             "--save-ema-weights",
                             "e"});
  EXPECT_EQ(o.norm_weight_decay, 0);
  EXPECT_EQ(o.bias_weight_decay, 0.5);
  EXPECT_EQ(o.transformer_embedding_decay, 0.25);
  EXPECT_EQ(o.clip_grad_norm, 2);
  EXPECT_EQ(o.label_smoothing, 0.1);
  EXPECT_EQ(o.grad_accum_steps, 3);
  EXPECT_EQ(o.lr_schedule.scheduler, "multisteplr");
  EXPECT_EQ(o.lr_schedule.milestones, (std::vector<std::int64_t>{60, 120, 160}));
  EXPECT_EQ(o.lr_schedule.gamma, 0.2);
  EXPECT_EQ(o.lr_schedule.warmup_epochs, 5);
  EXPECT_EQ(o.lr_schedule.warmup_method, "linear");
  EXPECT_EQ(o.lr_schedule.warmup_decay, 0.2);
  EXPECT_TRUE(o.model_ema.on);
  EXPECT_EQ(o.model_ema.steps, 8);
  EXPECT_EQ(o.model_ema.decay, 0.9);
  EXPECT_EQ(o.save_ema_weights, "e");
  EXPECT_EQ(options({"--lr-scheduler", "steplr", "--lr-step-size", "7"}).lr_schedule.step_size, 7);
  EXPECT_EQ(options({"--lr-scheduler", "cosineannealinglr", "--lr-min", "0.1"}).lr_schedule.min, 0.1);
  EXPECT_TRUE(options({"--test-only"}).test_only);
  EXPECT_EQ(options({"--freeze", "a.*,b"}).freeze, "a.*,b");
}

// As PyTorch's ImageNet example and timm spell them.
TEST(Options, OtherSpellingsArrive) {
  const Options o = options({"-a",
                             "resnet18",
                             "--data-dir",
                             "d",
                             "--dataset",
                             "imagefolder",
                             "--learning-rate",
                             "0.5",
                             "--wd",
                             "0.1",
                             "-p",
                             "7",
                             "--clip-grad",
                             "2",
                             "--smoothing",
                             "0.1",
                             "--reprob",
                             "0.25",
                             "--mixup",
                             "0.2",
                             "--cutmix",
                             "1",
                             "--warmup-epochs",
                             "3",
                             "--initial-checkpoint",
                             "w.pt",
                             "--train-interpolation",
                             "bicubic"});
  EXPECT_EQ(o.model, "resnet18");
  EXPECT_EQ(o.data_path, "d");
  EXPECT_EQ(o.lr, 0.5);
  EXPECT_EQ(o.weight_decay, 0.1);
  EXPECT_EQ(o.print_freq, 7);
  EXPECT_EQ(o.clip_grad_norm, 2);
  EXPECT_EQ(o.label_smoothing, 0.1);
  EXPECT_EQ(o.random_erase, 0.25);
  EXPECT_EQ(o.mixup_alpha, 0.2);
  EXPECT_EQ(o.cutmix_alpha, 1);
  EXPECT_EQ(o.lr_schedule.warmup_epochs, 3);
  EXPECT_EQ(o.weights, "w.pt");
  EXPECT_EQ(o.interpolation, "bicubic");
  const Options steps = options({"--lr-scheduler", "steplr", "--decay-epochs", "4", "--decay-rate", "0.5"});
  EXPECT_EQ(steps.lr_schedule.step_size, 4);
  EXPECT_EQ(steps.lr_schedule.gamma, 0.5);
  EXPECT_TRUE(options({"-e"}).test_only);
  EXPECT_TRUE(options({"--arch=resnet18", "--dataset", "mnist", "--dummy"}).synthetic);
  EXPECT_EQ(options({"--log-interval", "9"}).print_freq, 9);
  EXPECT_EQ(refusal({"--wd", "-1"}), refusal({"--weight-decay", "-1"}));
}

TEST(Options, AFlagThatMeansNothingIsRefused) {
  EXPECT_THAT(refusal({"--lr-gamma", "0.5"}), HasSubstr("--lr-gamma has no meaning without --lr-scheduler steplr"));
  EXPECT_THAT(refusal({"--lr-scheduler", "steplr", "--lr-min", "0"}), HasSubstr("--lr-min has no meaning without"));
  EXPECT_THAT(refusal({"--lr-scheduler", "multisteplr"}), HasSubstr("needs --lr-milestones"));
  EXPECT_THAT(refusal({"--lr-warmup-decay", "0.5"}), HasSubstr("without --lr-warmup-epochs"));
  EXPECT_THAT(refusal({"--model-ema-decay", "0.5"}), HasSubstr("without --model-ema"));
  EXPECT_EQ(refusal({"--ra-reps", "2"}), "--ra-reps has no meaning without --ra-sampler");
  EXPECT_EQ(refusal({"--ra-magnitude", "2"}), "--ra-magnitude has no meaning without --auto-augment ra");
  EXPECT_EQ(options({"--transforms", "auto_augment=augmix", "--augmix-severity", "2"}).augmix_severity, 2);
  EXPECT_EQ(options({"--transforms", "rotation=9,resize=28", "--interpolation", "nearest"}).interpolation, "nearest");
  EXPECT_EQ(refusal({"--transforms", "rotation=9,auto_augment", "--interpolation", "nearest"}),
            "--interpolation has no meaning for --transforms rotation=9,auto_augment: in a list it is for resize, "
            "random_resized_crop and auto_augment=augmix");
  EXPECT_THAT(refusal({"--dataset", "line", "--model", "linear", "--ra-sampler"}), HasSubstr("neither classes nor"));
  EXPECT_THAT(refusal({"--save-ema-weights", "e"}), HasSubstr("without --model-ema"));
  EXPECT_THAT(refusal({"--test-only", "--no-eval"}), HasSubstr("nothing is left to do"));
  EXPECT_THAT(refusal({"--test-only", "--epochs", "3"}), HasSubstr("--epochs has no meaning with --test-only"));
  EXPECT_THAT(refusal({"--test-only", "--freeze", "fc.*"}), HasSubstr("--freeze has no meaning with --test-only"));
}

TEST(Options, ReplicasAreOfOneProcess) {
  const Options o = options({"--parallel", "dp", "--replicas", "3", "-n", "1"});
  EXPECT_TRUE(is_replicated(o));
  EXPECT_EQ(o.replicas, 3);
  EXPECT_EQ(refusal({"--parallel", "dp"}), "--parallel dp needs --replicas N, for how many the batch is cut");
  EXPECT_EQ(refusal({"--parallel", "dp", "--device", "cuda:0"}), kReplicasMissing);
  EXPECT_FALSE(options({"--parallel", "dp", "--device", "cuda"}).replicas) << "one on each GPU, counted later";
  EXPECT_EQ(refusal({"--replicas", "2"}),
            "--replicas has no meaning without --parallel dp: -n says how many processes there are");
  EXPECT_EQ(refusal({"--parallel", "dp", "--replicas", "2", "-n", "2"}),
            "--nproc-per-node 2 with --parallel dp, which is one process with --replicas N");
  EXPECT_THAT(refusal({"--parallel", "dp", "--replicas", "2", "--sync-bn"}), HasSubstr("--sync-bn with --parallel dp"));
  EXPECT_EQ(refusal({"--parallel", "dp", "--replicas", "2", "--reduction", "fast"}),
            "--reduction fast with --parallel dp, which is one process on one node");
  EXPECT_EQ(refusal({"--parallel", "dp", "--replicas", "2", "--compression", "bf16"}),
            "--compression bf16 with --parallel dp, which is one process on one node");
  EXPECT_THAT(refusal({"--parallel", "dp", "--replicas", "2", "--bind-to", "core"}),
              HasSubstr("--bind-to core with --parallel dp"));
  EXPECT_THAT(refusal({"--parallel", "dp", "--replicas", "0"}), HasSubstr("--replicas '0'"));
}

// A new flag is a promise to users: it belongs into the reference and into this list.
TEST(Options, TheListOfFlagsIsFrozen) {
  const std::vector<std::string> frozen = {"--batch-size",
                                           "--data-path",
                                           "--dataset",
                                           "--epochs",
                                           "--global-batch-size",
                                           "--help",
                                           "--logical-shards",
                                           "--lr",
                                           "--max-restarts",
                                           "--grace-period",
                                           "--slice-rows",
                                           "--log-dir",
                                           "--redirects",
                                           "--tee",
                                           "--device",
                                           "--backend",
                                           "--use-v2",
                                           "--start-epoch",
                                           "--cache-dataset",
                                           "--max-steps",
                                           "--model",
                                           "--momentum",
                                           "--no-eval",
                                           "--nproc-per-node",
                                           "--opt",
                                           "--output-dir",
                                           "--overwrite",
                                           "--bias-weight-decay",
                                           "--transformer-embedding-decay",
                                           "--checkpoint-hist",
                                           "--checkpoint-best",
                                           "--monitor",
                                           "--resume",
                                           "--save-every",
                                           "--stop-on",
                                           "--recipe",
                                           "--config",
                                           "--clip-grad-norm",
                                           "--grad-accum-steps",
                                           "--label-smoothing",
                                           "--lr-gamma",
                                           "--lr-milestones",
                                           "--lr-min",
                                           "--lr-patience",
                                           "--patience",
                                           "--synthetic",
                                           "--limit-train-batches",
                                           "--limit-val-batches",
                                           "--fast-dev-run",
                                           "--lr-scheduler",
                                           "--lr-step-size",
                                           "--lr-warmup-decay",
                                           "--lr-warmup-epochs",
                                           "--lr-warmup-method",
                                           "--model-ema",
                                           "--model-ema-decay",
                                           "--model-ema-steps",
                                           "--norm-weight-decay",
                                           "--save-ema-weights",
                                           "--test-only",
                                           "--print-freq",
                                           "--freeze",
                                           "--save-weights",
                                           "--seed",
                                           "--threads",
                                           "--amp",
                                           "--arithmetic",
                                           "--reduction",
                                           "--compression",
                                           "--zero1",
                                           "--overlap-bytes",
                                           "--channels-last",
                                           "--fuse",
                                           "--sync-bn",
                                           "--parallel",
                                           "--replicas",
                                           "--timeline",
                                           "--bind-to",
                                           "--timeout",
                                           "--stall-warning",
                                           "--no-check-calls",
                                           "--version",
                                           "--weight-decay",
                                           "--weights",
                                           "--weights-map",
                                           "--transforms",
                                           "--download",
                                           "--download-mirror",
                                           "--train-split",
                                           "--val-split",
                                           "--test-split",
                                           "--eval-best",
                                           "--head",
                                           "--target",
                                           "--columns",
                                           "--val-fraction",
                                           "--loss",
                                           "--class-weights",
                                           "--train-crop-size",
                                           "--val-resize-size",
                                           "--val-crop-size",
                                           "--interpolation",
                                           "--auto-augment",
                                           "--ra-magnitude",
                                           "--augmix-severity",
                                           "--random-erase",
                                           "--index-cache",
                                           "--mixup-alpha",
                                           "--cutmix-alpha",
                                           "--ra-sampler",
                                           "--ra-reps",
                                           "--cache-images",
                                           "--max-time",
                                           "--use-deterministic-algorithms",
                                           "--dist-url",
                                           "--dist-backend",
                                           "--workers"};
  const std::string help = parse({"--help"}).text;
  std::vector<std::string> found;
  const std::regex flag_line("(?:^|\n)  (?:-[a-z], ?)?(--[a-z0-9-]+)");
  for (std::sregex_iterator match(help.begin(), help.end(), flag_line), end; match != end; ++match)
    found.push_back((*match)[1]);
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(frozen)) << help;
}

// What config.json has always said: a key that goes, or changes its name or type, breaks those who read it.
TEST(Options, TheRecordIsFrozen) {
  const nlohmann::json expected = {{"model", "convnet"},
                                   {"dataset", "digits"},
                                   {"data_path", ""},
                                   {"cache_dataset", false},
                                   {"index_cache", ""},
                                   {"train_split", "train"},
                                   {"val_split", ""},
                                   {"test_split", ""},
                                   {"eval_best", false},
                                   {"head", ""},
                                   {"target", ""},
                                   {"columns", ""},
                                   {"slice_rows", false},
                                   {"val_fraction", 0.2},
                                   {"loss", "cross_entropy"},
                                   {"class_weights", nlohmann::json::array()},
                                   {"transforms", "none"},
                                   {"train_crop_size", 224},
                                   {"val_resize_size", 256},
                                   {"val_crop_size", 224},
                                   {"interpolation", "bilinear"},
                                   {"auto_augment", "none"},
                                   {"ra_magnitude", 9},
                                   {"augmix_severity", 3},
                                   {"random_erase", 0.0},
                                   {"mixup_alpha", 0.0},
                                   {"cutmix_alpha", 0.0},
                                   {"ra_sampler", false},
                                   {"ra_reps", 3},
                                   {"cache_images", 0},
                                   {"workers", 1},
                                   {"epochs", nullptr},
                                   {"max_steps", nullptr},
                                   {"max_time", nullptr},
                                   {"nproc_per_node", nullptr},
                                   {"batch_size", nullptr},
                                   {"global_batch_size", nullptr},
                                   {"logical_shards", nullptr},
                                   {"opt", "sgd"},
                                   {"lr", 0.001},
                                   {"momentum", 0.0},
                                   {"weight_decay", 0.0},
                                   {"norm_weight_decay", nullptr},
                                   {"bias_weight_decay", nullptr},
                                   {"transformer_embedding_decay", nullptr},
                                   {"clip_grad_norm", nullptr},
                                   {"label_smoothing", 0.0},
                                   {"grad_accum_steps", 1},
                                   {"lr_scheduler", "constant"},
                                   {"lr_step_size", 30},
                                   {"lr_milestones", nlohmann::json::array()},
                                   {"lr_gamma", 0.1},
                                   {"lr_min", 0.0},
                                   {"lr_warmup_epochs", 0},
                                   {"lr_warmup_method", "constant"},
                                   {"lr_warmup_decay", 0.01},
                                   {"model_ema", false},
                                   {"model_ema_steps", 32},
                                   {"model_ema_decay", 0.99998},
                                   {"save_ema_weights", ""},
                                   {"test_only", false},
                                   {"save_every", "0"},
                                   {"stop_on", "SIGTERM"},
                                   {"lr_patience", 10},
                                   {"patience", 0},
                                   {"synthetic", false},
                                   {"limit_train_batches", nullptr},
                                   {"limit_val_batches", nullptr},
                                   {"fast_dev_run", false},
                                   {"checkpoint_hist", 10},
                                   {"checkpoint_best", 1},
                                   {"monitor", "top1"},
                                   {"seed", 0},
                                   {"weights", ""},
                                   {"weights_map", ""},
                                   {"freeze", ""},
                                   {"save_weights", ""},
                                   {"amp", "none"},
                                   {"arithmetic", "native"},
                                   {"reduction", "exact"},
                                   {"compression", "none"},
                                   {"zero1", "none"},
                                   {"channels_last", false},
                                   {"fuse", false},
                                   {"sync_bn", false},
                                   {"parallel", "ddp"},
                                   {"replicas", nullptr},
                                   {"device", "cpu"},
                                   {"threads", 1},
                                   {"bind_to", "none"},
                                   {"timeout", 300.0},
                                   {"stall_warning", 10.0},
                                   {"print_freq", 100},
                                   {"eval", true}};
  EXPECT_EQ(nlohmann::json::parse(options_json(options({}))), expected);
  const auto given = nlohmann::json::parse(options_json(options(
      {"-n", "2", "--opt", "sgd_nesterov", "--epochs", "3", "--no-eval", "--channels-last", "--save-weights", "w"})));
  EXPECT_EQ(given.at("nproc_per_node"), 2);
  EXPECT_EQ(given.at("momentum"), 0.9) << "what follows from other flags";
  EXPECT_EQ(given.at("epochs"), 3);
  EXPECT_EQ(given.at("eval"), false);
  EXPECT_EQ(given.at("channels_last"), true);
  EXPECT_EQ(given.at("save_weights"), "w");
  EXPECT_EQ(given.size(), expected.size());
}

}  // namespace
}  // namespace lockstep::train
