// One and the same result, to the bit, for every number of processes and every launcher.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/train_run.h"

namespace lockstep {
namespace {

using testing::By;
using testing::Job;
using Flags = std::vector<std::string>;

// Dropout draws random numbers, BatchNorm keeps statistics, Adam has two moments and a step count.
const Flags kMlp = {"--model", "mlp_dropout", "--opt", "adam"};
const Flags kConvNet = {"--model", "convnet", "--opt", "sgd", "--momentum", "0.9"};

class TrainBits : public ::testing::Test {
 protected:
  // 250 samples in batches of 24 are 11 steps, the last of them smaller: 13 cross an epoch's edge.
  Job start(By launcher, int processes, int shards, Flags flags) {
    flags.insert(flags.end(), {"--dataset", "mnist", "--data-path", set_, "--global-batch-size", "24", "--max-steps",
                               "13", "--print-freq", "1", "--logical-shards", std::to_string(shards), "--output-dir",
                               folder_.file("run"), "--overwrite"});
    return Job(testing::train_command(launcher, processes, flags));
  }

  std::vector<std::string> train(By launcher, int processes, int shards, const Flags& flags) {
    Job job = start(launcher, processes, shards, flags);
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_TRUE(job.nothing_left());
    return testing::results(testing::read_file(folder_.file("run/metrics.jsonl")));
  }

  // 13 steps, 2 evaluations, the hash: what one process has of them.
  std::vector<std::string> expect_same_bits(By launcher, const std::vector<int>& worlds, int shards,
                                            const Flags& flags) {
    const auto reference = train(By::lockstep, 1, shards, flags);
    EXPECT_EQ(reference.size(), 16u);
    for (const int processes : worlds)
      EXPECT_EQ(train(launcher, processes, shards, flags), reference)
          << processes << " processes by " << to_string(launcher);
    return reference;
  }

  testing::ScratchFolder folder_;
  const std::string set_ = testing::write_mnist(folder_);
};

// The largest world twice in a row: there the ranks' order of arrival varies most.
TEST_F(TrainBits, FourShardsMlp) { expect_same_bits(By::lockstep, {2, 3, 4, 4}, 4, kMlp); }

TEST_F(TrainBits, FourShardsConvNet) { expect_same_bits(By::lockstep, {2, 3, 4, 4}, 4, kConvNet); }

TEST_F(TrainBits, InBfloat16AndChannelsLast) {
  Flags flags = kConvNet;
  flags.insert(flags.end(), {"--amp", "bf16", "--channels-last"});
  const auto bits = expect_same_bits(By::lockstep, {4}, 4, flags);
  EXPECT_NE(bits.back(), train(By::lockstep, 2, 4, kConvNet).back());
}

TEST_F(TrainBits, WithFusedLayers) {
  Flags flags = kConvNet;
  flags.insert(flags.end(), {"--fuse", "--channels-last", "--amp", "bf16"});
  expect_same_bits(By::lockstep, {4}, 4, flags);
  Job job = start(By::lockstep, 2, 4, flags);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.err(), ::testing::HasSubstr("lockstep: fused layer1.1: BatchNorm2d, ReLU, MaxPool2d -> "));
  for (const Flags& more : std::vector<Flags>{{"--sync-bn"}, {"--parallel", "dp", "--replicas", "2"}}) {
    Flags both = kConvNet;
    both.push_back("--fuse");
    both.insert(both.end(), more.begin(), more.end());
    EXPECT_EQ(start(By::lockstep, 1, 4, both).wait(), 2);
  }
  EXPECT_EQ(start(By::lockstep, 1, 4, {"--model", "mlp", "--fuse"}).wait(), 2) << "nothing to fuse";
}

// The first scale, 65536, overflows: the steps that are skipped are the same ones, too.
TEST_F(TrainBits, InFloat16WithAScaledLoss) {
  Flags flags = kMlp;
  flags.insert(flags.end(), {"--amp", "fp16"});
  const auto bits = expect_same_bits(By::lockstep, {2}, 4, flags);
  EXPECT_NE(bits.back(), train(By::lockstep, 2, 4, kMlp).back());
}

// The hashes are those of a Sapphire Rapids, found on AMDs of the third and fourth generation, too. The second is one
// process, started by nobody, which has to start again before libtorch has looked at the CPU.
TEST_F(TrainBits, PortableArithmeticIsThatOfOtherCpus) {
  const Flags job = {"--arithmetic", "portable",    "--dataset",    "digits",           "--model", "mlp",
                     "--max-steps",  "50",          "--no-eval",    "--seed",           "5",       "--lr",
                     "0.01",         "--overwrite", "--output-dir", folder_.file("run")};
  Flags alone = {std::filesystem::path(LOCKSTEP_PROGRAM).replace_filename("lockstep-trainer").string(),
                 "--global-batch-size", "200", "--logical-shards", "2"};
  alone.insert(alone.end(), job.begin(), job.end());
  for (const Flags& command : {testing::train_command(By::lockstep, 2, job), alone}) {
    Job run(command);
    ASSERT_EQ(run.wait(), 0) << run.err();
    EXPECT_EQ(testing::weights_hash(testing::read_file(folder_.file("run/metrics.jsonl"))),
              "b7a7969f0157f9ab0343c5e03ff083c4");
  }
}

// Of convolutions, as above. The ConvNet takes a third of a minute: the other CPU's hash is that of so many steps.
TEST_F(TrainBits, PortableConvolutionsAreThoseOfOtherCpus) {
  const auto hash = [&](Flags flags) {
    flags.insert(flags.end(),
                 {"--arithmetic", "portable", "--no-eval", "--overwrite", "--output-dir", folder_.file("run")});
    Job job(testing::train_command(By::lockstep, 2, flags));
    EXPECT_EQ(job.wait(), 0) << job.err();
    return testing::weights_hash(testing::read_file(folder_.file("run/metrics.jsonl")));
  };
  EXPECT_EQ(hash({"--model", "resnet18_cifar", "--batch-size", "4", "--max-steps", "4", "--seed", "5", "--lr", "0.01"}),
            "34cf15149a36f942e3b9db348faf0815");
  EXPECT_EQ(hash({"--dataset", "digits", "--model", "convnet", "--batch-size", "100", "--opt", "adam", "--lr", "1e-3",
                  "--epochs", "1"}),
            "ac8a96518de6e27468a38f8f55ccb8f9");
}

// Its bits are those of a number of processes, in every run.
TEST_F(TrainBits, SyncBatchNormIsTheSameInEveryRun) {
  Flags flags = kConvNet;
  flags.push_back("--sync-bn");
  const auto first = train(By::lockstep, 3, 3, flags);
  EXPECT_EQ(train(By::lockstep, 3, 3, flags), first);
  EXPECT_NE(train(By::lockstep, 3, 3, kConvNet).back(), first.back());
}

// What torchvision's trainer has beside: over two epochs, so that the rate changes.
TEST_F(TrainBits, WithAScheduleGroupsClippingAndAnAverage) {
  Flags flags = kConvNet;
  for (const char* flag : {"--lr-scheduler",
                           "steplr",
                           "--lr-step-size",
                           "1",
                           "--lr-warmup-epochs",
                           "1",
                           "--lr-warmup-method",
                           "linear",
                           "--weight-decay",
                           "0.01",
                           "--norm-weight-decay",
                           "0",
                           "--bias-weight-decay",
                           "0.1",
                           "--clip-grad-norm",
                           "0.5",
                           "--label-smoothing",
                           "0.1",
                           "--model-ema",
                           "--model-ema-steps",
                           "2",
                           "--model-ema-decay",
                           "0.999"})
    flags.push_back(flag);
  expect_same_bits(By::lockstep, {2, 3, 4}, 4, flags);
}

// Batches that add up on two processes are the shards of four.
TEST_F(TrainBits, AccumulatedBatchesAreThoseOfMoreProcesses) {
  const auto run = [&](int processes, const char* accumulated) {
    Job job(testing::train_command(
        By::lockstep, processes,
        {"--model", "mlp_dropout", "--dataset", "mnist", "--data-path", set_, "--batch-size", "6", "--max-steps", "3",
         "--print-freq", "1", "--grad-accum-steps", accumulated, "--output-dir", folder_.file("run"), "--overwrite"}));
    EXPECT_EQ(job.wait(), 0) << job.err();
    return testing::results(testing::read_file(folder_.file("run/metrics.jsonl")));
  };
  EXPECT_EQ(run(2, "2"), run(4, "1"));
}

// One process that cuts the batch for replicas of the model. One replica is the model; several add their gradients up
// in another order, and BatchNorm has statistics of the first's part.
TEST_F(TrainBits, ReplicasOfOneProcessAreTheSameInEveryRun) {
  const auto with = [](Flags flags, const char* replicas) {
    flags.insert(flags.end(), {"--parallel", "dp", "--replicas", replicas});
    return flags;
  };
  Flags half = kConvNet;
  half.insert(half.end(), {"--amp", "bf16", "--channels-last", "--model-ema", "--model-ema-steps", "2"});
  for (const Flags& flags : {kMlp, half}) {
    const auto first = train(By::lockstep, 1, 2, with(flags, "3"));
    EXPECT_EQ(first.size(), 16u);
    EXPECT_EQ(train(By::lockstep, 1, 2, with(flags, "3")), first);
    if (flags == half) continue;  // bfloat16 is slow where a CPU has none
    const auto alone = train(By::lockstep, 1, 2, flags);
    EXPECT_EQ(train(By::lockstep, 1, 2, with(flags, "1")), alone);
    EXPECT_NE(first.back(), alone.back());
  }
}

TEST_F(TrainBits, SixShardsOnFourProcesses) {
  expect_same_bits(By::lockstep, {4}, 6, kMlp);
  expect_same_bits(By::lockstep, {4}, 6, kConvNet);
}

TEST_F(TrainBits, ByTorchrun) {
  if (const std::string reason = testing::why_not(By::torchrun); !reason.empty()) GTEST_SKIP() << reason;
  expect_same_bits(By::torchrun, {2}, 4, kMlp);
  expect_same_bits(By::torchrun, {3}, 4, kConvNet);
}

TEST_F(TrainBits, ByMpirun) {
  if (const std::string reason = testing::why_not(By::mpirun); !reason.empty()) GTEST_SKIP() << reason;
  expect_same_bits(By::mpirun, {3}, 4, kMlp);
  expect_same_bits(By::mpirun, {2}, 4, kConvNet);
}

// Controls: what is said to decide the bits does, and the comparison can fail.
TEST_F(TrainBits, AnotherShardCountOrSeedGivesOtherBits) {
  const auto hash = [&](int shards, const Flags& flags) { return train(By::lockstep, 2, shards, flags).back(); };
  const std::string mlp = hash(4, kMlp);
  EXPECT_NE(hash(6, kMlp), mlp);
  EXPECT_NE(hash(6, kConvNet), hash(4, kConvNet));
  Flags seeded = kMlp;
  seeded.insert(seeded.end(), {"--seed", "1"});
  EXPECT_NE(hash(4, seeded), mlp);
}

}  // namespace
}  // namespace lockstep
