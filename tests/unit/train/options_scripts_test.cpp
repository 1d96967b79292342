#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/train/parsed_options.h"

namespace lockstep::train {
namespace {

// Of PyTorch's scripts: what they ask for holds, or one line says what does.
TEST(Options, ScriptsOfPyTorchMayKeepTheirFlags) {
  EXPECT_EQ(options_json(options({"--use-deterministic-algorithms", "--dist-url", "env://", "--dist-backend", "gloo",
                                  "--device", "cpu", "--backend", "PIL", "--use-v2", "--start-epoch", "0"})),
            options_json(options({})));
  EXPECT_EQ(options({"--world-size", "3"}).processes(), 3);
  EXPECT_EQ(options({"--amp"}).amp, "fp16");
  EXPECT_EQ(options({"--amp", "bf16"}).amp, "bf16");
  EXPECT_EQ(refusal({"--backend", "tensor"}),
            "--backend 'tensor': pictures are read and transformed with PIL's numbers; pil is taken");
  EXPECT_EQ(refusal({"--start-epoch", "3"}),
            "--start-epoch '3': a checkpoint knows its step, and --resume goes on from there; 0 is taken");
  EXPECT_EQ(refusal({"--dist-url", "tcp://10.0.0.1:23456"}),
            "--dist-url 'tcp://10.0.0.1:23456': the launcher says where processes meet; env:// is taken");
  EXPECT_EQ(options_json(options({"--dist-backend", "nccl"})), options_json(options({})));
  EXPECT_EQ(refusal({"--dist-backend", "ucc"}),
            "--dist-backend 'ucc': processes of a node share memory; gloo and nccl are taken");
}

// It is checked where it is used whether there is one.
TEST(Options, DeviceIsAsTextAndRecorded) {
  EXPECT_EQ(options({}).device, "cpu");
  for (const char* device : {"cpu", "cuda", "cuda:3", "auto"}) EXPECT_EQ(options({"--device", device}).device, device);
  EXPECT_EQ(options({"--device", "CUDA:1"}).device, "cuda:1");
  EXPECT_THAT(options_json(options({"--device", "cuda"})), testing::HasSubstr("\"device\": \"cuda\""));
  EXPECT_EQ(refusal({"--device", "cdua"}),
            "--device: unknown device 'cdua': did you mean 'cuda'? (one of cpu, cuda, cuda:N, auto)");
  EXPECT_EQ(refusal({"--device", "cuda:x"}),
            "--device: device 'cuda:x': behind the colon must be a GPU's number from 0");
}

TEST(Options, ProcessesMayBeAsManyAsGpus) {
  const Options asked = options({"--nproc-per-node", "gpu"});
  EXPECT_TRUE(asked.nproc_by_gpus);
  EXPECT_EQ(asked.nproc_per_node, std::nullopt);
  EXPECT_FALSE(options({"-n", "2"}).nproc_by_gpus);
  EXPECT_EQ(refusal({"-n", "gpu", "--parallel", "dp", "--replicas", "2"}),
            "--nproc-per-node gpu with --parallel dp, which is one process with --replicas N");
  EXPECT_THAT(refusal({"-n", "gpus"}), testing::HasSubstr("--nproc-per-node 'gpus'"));
}

}  // namespace
}  // namespace lockstep::train
