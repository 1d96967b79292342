#include "lockstep/models/layers.h"

#include <torch/nn/modules/batchnorm.h>

namespace lockstep::models {

namespace nn = torch::nn;

nn::Conv2d convolution(const ConvShape& shape) {
  return nn::Conv2d(nn::Conv2dOptions(shape.in, shape.out, shape.kernel)
                        .stride(shape.stride)
                        .padding(shape.kernel / 2)
                        .groups(shape.groups)
                        .bias(false));
}

nn::ReLU relu() { return nn::ReLU(nn::ReLUOptions(/*inplace=*/true)); }

Row conv_norm(const ConvShape& shape, Activation activation) {
  Row row(convolution(shape), nn::BatchNorm2d(shape.out));
  if (activation == Activation::relu6) row->push_back(nn::ReLU6(nn::ReLU6Options(/*inplace=*/true)));
  if (activation == Activation::silu) row->push_back(nn::SiLU());
  return row;
}

SqueezeExcitationImpl::SqueezeExcitationImpl(std::int64_t channels, std::int64_t squeezed)
    : Module("SqueezeExcitation"),
      fc1_(nn::Conv2dOptions(channels, squeezed, 1)),
      fc2_(nn::Conv2dOptions(squeezed, channels, 1)) {
  register_module("fc1", fc1_);
  register_module("fc2", fc2_);
}

at::Tensor SqueezeExcitationImpl::forward(const at::Tensor& x) {
  return fc2_(at::silu(fc1_(at::adaptive_avg_pool2d(x, {1, 1})))).sigmoid() * x;
}

void draw_convolutions(const nn::Module& net, nn::init::FanModeType mode) {
  for_each_layer<nn::Conv2d>(net, [&](nn::Conv2dImpl& layer) {
    nn::init::kaiming_normal_(layer.weight, 0, mode, torch::kReLU);
    if (layer.options.bias()) nn::init::zeros_(layer.bias);
  });
}

}  // namespace lockstep::models
