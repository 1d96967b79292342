#pragma once

// What torchvision's nets are built of.

#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

namespace lockstep::models {

/// A Sequential that may be a part of another one: libtorch's cannot, its forward() is a template.
class RowImpl : public torch::nn::SequentialImpl {
 public:
  using SequentialImpl::SequentialImpl;
  at::Tensor forward(at::Tensor x) { return SequentialImpl::forward(std::move(x)); }
};
TORCH_MODULE(Row);

/// A square convolution.
struct ConvShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t groups = 1;
};

/// Without a bias, and padded so that a stride of 1 keeps height and width. `kernel` is odd.
torch::nn::Conv2d convolution(const ConvShape& shape);

/// In place.
torch::nn::ReLU relu();

enum class Activation { none, relu6, silu };

/// torchvision's Conv2dNormActivation: convolution(), BatchNorm, activation, by the names 0, 1, 2.
Row conv_norm(const ConvShape& shape, Activation activation);

/// Hu, Shen, Sun, "Squeeze-and-Excitation Networks": each channel is scaled by what a small net makes of the means of
/// all of them. Names: fc1, fc2, which are 1x1 convolutions.
class SqueezeExcitationImpl : public torch::nn::Module {
 public:
  SqueezeExcitationImpl(std::int64_t channels, std::int64_t squeezed);
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Conv2d fc1_;
  torch::nn::Conv2d fc2_;
};
TORCH_MODULE(SqueezeExcitation);

/// Calls `draw` with each layer of the type `Layer` (Conv2d, Linear), in the order in which Python's modules() has
/// them.
template <class Layer, class Draw>
void for_each_layer(const torch::nn::Module& net, const Draw& draw) {
  for (const auto& module : net.modules(/*include_self=*/false))
    if (auto* layer = module->as<Layer>()) draw(*layer);
}

/// New weights for all convolutions, kaiming_normal_(weight, mode=`mode`) as for ReLU; their biases become zeros.
void draw_convolutions(const torch::nn::Module& net, torch::nn::init::FanModeType mode);

}  // namespace lockstep::models
