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
  EXPECT_EQ(refusal({"--device", "cuda"}), "--device 'cuda': models compute on the CPU; cpu is taken");
  EXPECT_EQ(refusal({"--backend", "tensor"}),
            "--backend 'tensor': pictures are read and transformed with PIL's numbers; pil is taken");
  EXPECT_EQ(refusal({"--start-epoch", "3"}),
            "--start-epoch '3': a checkpoint knows its step, and --resume goes on from there; 0 is taken");
  EXPECT_EQ(refusal({"--dist-url", "tcp://10.0.0.1:23456"}),
            "--dist-url 'tcp://10.0.0.1:23456': the launcher says where processes meet; env:// is taken");
  EXPECT_EQ(refusal({"--dist-backend", "nccl"}),
            "--dist-backend 'nccl': processes share this machine's memory, and compute on its CPU; gloo is taken");
}

}  // namespace
}  // namespace lockstep::train
