#include "lockstep/checkpoint/weights.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/models/registry.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::checkpoint {
namespace {

TEST(Weights, GoThroughAFileIntoAnotherModel) {
  const testing::ScratchFolder folder;
  const auto from = models::make_model("convnet"), to = models::make_model("convnet");
  from->forward(torch::rand({4, 1, 28, 28}));  // moves the statistics away from their start
  write_safetensors(folder.file("w"), state_dict(*from));
  load_into(*to, read_safetensors(folder.file("w")), "w");
  const TensorMap a = state_dict(*from), b = state_dict(*to);
  ASSERT_EQ(a.size(), 16u);
  for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  EXPECT_EQ(b.at("layer1.1.num_batches_tracked").item<std::int64_t>(), 1);
}

TEST(Weights, StayInPlaceAndKeepTheirGradientFlag) {
  const auto model = models::make_model("mlp");
  const at::Tensor weight = state_dict(*model).at("fc2.weight");
  const void* address = weight.const_data_ptr();
  TensorMap zeros;
  for (const auto& [name, tensor] : state_dict(*model)) zeros.emplace(name, torch::zeros_like(tensor));
  load_into(*model, zeros, "zeros");
  EXPECT_EQ(weight.const_data_ptr(), address);
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_EQ(weight.abs().max().item<float>(), 0);
}

TEST(Weights, EveryDifferenceIsListedAndNothingIsCopied) {
  const auto model = models::make_model("mlp");
  TensorMap tensors;
  for (const auto& [name, tensor] : state_dict(*model)) tensors.emplace(name, torch::zeros_like(tensor));
  tensors.erase("fc1.bias");
  tensors["fc1.weight"] = torch::zeros({784, 128});
  tensors["fc2.bias"] = torch::zeros({10}, torch::kHalf);
  tensors["fc3.weight"] = torch::zeros({1});
  EXPECT_EQ(testing::usage_error([&] { load_into(*model, tensors, "'w.safetensors'"); }),
            "'w.safetensors' does not fit the model: missing fc1.bias; shape of fc1.weight is [784, 128], [128, 784] "
            "expected; dtype of fc2.bias is Half, Float expected; unexpected fc3.weight");
  EXPECT_NE(state_dict(*model).at("fc2.weight").abs().max().item<float>(), 0);
}

TEST(Weights, StrangeNamesMakeNoEndlessMessage) {
  const auto model = models::make_model("mlp");
  TensorMap tensors = state_dict(*model);
  tensors.emplace("two\nlines" + std::string(100'000, 'x'), torch::zeros({1}));
  for (int i = 0; i < 2000; ++i) tensors.emplace("z" + std::to_string(i), torch::zeros({1}));
  const std::string message = testing::usage_error([&] { load_into(*model, tensors, "w"); });
  EXPECT_NE(message.find("unexpected two\\nlines"), std::string::npos);
  EXPECT_NE(message.find("; and 1001 more"), std::string::npos);
  EXPECT_LT(message.size(), 20'000u);
}

TEST(StateDict, LeavesUndefinedEntriesOut) {
  torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(3).track_running_stats(false));
  EXPECT_EQ(state_dict(*norm).size(), 2u);
}

}  // namespace
}  // namespace lockstep::checkpoint
