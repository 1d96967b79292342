#include "lockstep/parallel/memory_format.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/functional/pooling.h>
#include <torch/types.h>

#include <functional>

#include "lockstep/parallel/forward_scope.h"

namespace lockstep::parallel {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

struct Gradients {
  at::Tensor of_pictures;
  bool came_channels_last = false;  ///< to the pooling, from the rows
};

using ToRows = std::function<at::Tensor(const at::Tensor&)>;

Gradients backward_through(const ToRows& to_rows, bool in_scope, at::MemoryFormat format) {
  torch::manual_seed(1);
  at::Tensor pictures = torch::randn({3, 4, 6, 6}).to(torch::kBFloat16).contiguous(format);
  pictures.select(2, 2).select(2, 2).fill_(9);  // the largest of four windows, whose gradients are added
  pictures.requires_grad_();
  const at::Tensor pooled =
      torch::nn::functional::max_pool2d(pictures.relu(), torch::nn::functional::MaxPool2dFuncOptions(3).stride(2));
  Gradients gradients;
  const at::Tensor rows = [&] {
    const ForwardScope scope(DataParallelOptions{.channels_last = in_scope}, at::kCPU);
    return to_rows(pooled);
  }();
  pooled.register_hook([&](const at::Tensor& gradient) {
    gradients.came_channels_last = gradient.is_contiguous(kLast) && !gradient.is_contiguous();
  });
  (rows * torch::randn(rows.sizes())).sum().backward();
  gradients.of_pictures = pictures.grad();
  return gradients;
}

TEST(KeepChannelsLast, RowsGiveTheGradientBackInTheFormatOfThePictures) {
  for (const ToRows& to_rows :
       {ToRows([](const at::Tensor& x) { return x.flatten(1); }), ToRows([](const at::Tensor& x) {
          return x.reshape({x.size(0), -1});
        })}) {
    const Gradients inside = backward_through(to_rows, true, kLast);
    const Gradients outside = backward_through(to_rows, false, kLast);
    EXPECT_TRUE(inside.came_channels_last);
    EXPECT_FALSE(outside.came_channels_last) << "PyTorch does it itself: the scope is not needed any more";
    EXPECT_TRUE(torch::equal(inside.of_pictures, outside.of_pictures));
    EXPECT_FALSE(backward_through(to_rows, true, at::MemoryFormat::Contiguous).came_channels_last);
  }
}

TEST(KeepChannelsLast, LeavesNoHookOnAParameter) {
  const at::Tensor weight = torch::zeros({4, 3, 2, 2}).contiguous(kLast).requires_grad_();
  const ForwardScope scope(DataParallelOptions{.channels_last = true}, at::kCPU);
  EXPECT_EQ(weight.flatten(1).size(1), 12);
  EXPECT_TRUE(torch::autograd::impl::hooks(weight).empty());
}

TEST(KeepChannelsLast, EndsWithItsBlock) {
  const auto is_hooked = [] {
    const at::Tensor pictures = torch::zeros({2, 3, 2, 2}).contiguous(kLast).requires_grad_() * 2;
    pictures.flatten(1);
    return !torch::autograd::impl::hooks(pictures).empty();
  };
  {
    const ForwardScope scope(DataParallelOptions{.channels_last = true}, at::kCPU);
    {
      const ForwardScope inner(DataParallelOptions{.channels_last = false}, at::kCPU);
      EXPECT_FALSE(is_hooked());
    }
    EXPECT_TRUE(is_hooked());
  }
  EXPECT_FALSE(is_hooked());
}

}  // namespace
}  // namespace lockstep::parallel
