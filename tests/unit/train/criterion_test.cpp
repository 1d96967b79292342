#include "lockstep/train/criterion.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/usage_error.h"

namespace lockstep::train {
namespace {

TEST(Criterion, WeighsClassesAsPyTorch) {
  const at::Tensor logits = at::tensor({1.0F, 2.0F, 0.5F, -1.0F}).view({2, 2});
  const at::Tensor labels = at::tensor({std::int64_t(0), std::int64_t(1)});
  const at::Tensor weight = at::tensor({3.0F, 1.0F});
  const Criterion weighted({.loss = "cross_entropy", .class_weights = {3, 1}}, 2);
  EXPECT_TRUE(at::equal(weighted(logits, labels), at::cross_entropy_loss(logits, labels, weight)));
  EXPECT_EQ(testing::usage_error([] {
              Criterion({.loss = "cross_entropy", .class_weights = {1, 2, 3}}, 2);
            }),
            "--class-weights has 3 numbers, the data set has 2 classes");
}

// PyTorch's mse_loss would broadcast.
TEST(Criterion, NamesTheModelOfAnotherShape) {
  const Criterion mse({.model = "net", .loss = "mse"}, 1), classes({.model = "net"}, 3);
  EXPECT_EQ(testing::usage_error([&] {
              mse(at::ones({4}), at::ones({4, 1}));
            }),
            "--model net makes [4] of 4 samples: [4, 1] expected");
  EXPECT_EQ(testing::usage_error([&] {
              classes(at::ones({4, 2}), at::zeros({4}, at::kLong));
            }),
            "--model net makes [4, 2] of 4 samples: [4, 3] expected");
  EXPECT_EQ(testing::usage_error([&] {
              classes(at::ones({2, 3}), at::zeros({4}, at::kLong));
            }),
            "--model net makes [2, 3] of 4 samples: [4, 3] expected");
}

// What is evaluated is what is trained by.
TEST(Criterion, LossesOfARegression) {
  const at::Tensor output = at::tensor({1.0F, 2.0F, 5.0F, -3.0F}).view({4, 1}), target = at::full({4, 1}, 1.5F);
  const at::Tensor difference = (output - target).to(at::kDouble);
  for (const char* loss : {"mse", "l1", "smooth_l1"}) {
    const double trained = Criterion({.loss = loss}, 1)(output, target).item<double>();
    EXPECT_DOUBLE_EQ(losses_of(loss, difference).mean().item<double>(), trained) << loss;
  }
  EXPECT_DOUBLE_EQ(Criterion({.loss = "mse"}, 1)(output, target).item<double>(), (0.25 + 0.25 + 12.25 + 20.25) / 4);
  EXPECT_DOUBLE_EQ(Criterion({.loss = "l1"}, 1)(output, target).item<double>(), (0.5 + 0.5 + 3.5 + 4.5) / 4);
  EXPECT_DOUBLE_EQ(Criterion({.loss = "smooth_l1"}, 1)(output, target).item<double>(), (0.125 + 0.125 + 3 + 4) / 4);
}

}  // namespace
}  // namespace lockstep::train
