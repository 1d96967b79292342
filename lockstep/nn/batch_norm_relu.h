#pragma once

// Batch normalisation of pictures with what usually follows it, in one layer:
//
//   lockstep::nn::BatchNormReLU2d(64)                      relu(bn(x))
//   lockstep::nn::BatchNormAddReLU2d(64)                   relu(bn(x) + y), with which a block of a ResNet ends
//   lockstep::nn::BatchNormReLUMaxPool2d(64, Pooling::halving)  max_pool2d(relu(bn(x)), 2)
//
// Options, parameters, buffers and their names are those of torch::nn::BatchNorm2d, and so are state dicts. What is in
// between is never written: forward reads x twice and writes the result, backward reads x twice and writes its gradient
// (pooled: once, and in between only what pooling left).
//
// The same function as the separate operators, but not the same bits: statistics are summed in float64, and bfloat16 is
// rounded once, at the end. Which bits does not depend on the number of threads or on the instruction set. Where
// several values of a window round to the same, pooling takes the largest before rounding.
//
// Fused are pictures on the CPU of float or bfloat16, channels-last or plain, with parameters and statistics in float;
// in evaluation only where no gradient is wanted; pooling only where they are channels-last. All else is computed by
// PyTorch's separate operators: other devices and dtypes, empty batches, plain pictures of fewer than 64 pixels,
// gradients that are to be differentiated again (create_graph), layers given to convert_sync_batchnorm(). Errors are
// PyTorch's.
//
// They are BatchNorm2ds: by a pointer to that one calls the normalisation alone. Not thread-safe, as all modules.

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <iosfwd>
#include <memory>
#include <optional>

#include "lockstep/nn/pooling.h"

namespace lockstep::nn {

class BatchNormReLU2dImpl : public torch::nn::BatchNorm2dImpl {
 public:
  using BatchNorm2dImpl::BatchNorm2dImpl;
  /// With the parameters and buffers of `norm`, not copies.
  explicit BatchNormReLU2dImpl(const torch::nn::BatchNorm2dImpl& norm) : BatchNorm2dImpl(norm) {}
  at::Tensor forward(const at::Tensor& x);
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override;
  void pretty_print(std::ostream& stream) const override;
};
TORCH_MODULE(BatchNormReLU2d);

class BatchNormAddReLU2dImpl : public torch::nn::BatchNorm2dImpl {
 public:
  using BatchNorm2dImpl::BatchNorm2dImpl;
  /// With the parameters and buffers of `norm`, not copies.
  explicit BatchNormAddReLU2dImpl(const torch::nn::BatchNorm2dImpl& norm) : BatchNorm2dImpl(norm) {}
  /// `added` is added to the normalised x; of any sizes that fit these, but fused where they are the same.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& added);
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override;
  void pretty_print(std::ostream& stream) const override;
};
TORCH_MODULE(BatchNormAddReLU2d);

class BatchNormReLUMaxPool2dImpl : public torch::nn::BatchNorm2dImpl {
 public:
  BatchNormReLUMaxPool2dImpl(const torch::nn::BatchNorm2dOptions& options, Pooling pooling)
      : BatchNorm2dImpl(options), pooling_(pooling) {}
  /// With the parameters and buffers of `norm`, not copies.
  BatchNormReLUMaxPool2dImpl(const torch::nn::BatchNorm2dImpl& norm, Pooling pooling)
      : BatchNorm2dImpl(norm), pooling_(pooling) {}
  at::Tensor forward(const at::Tensor& x);
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override;
  void pretty_print(std::ostream& stream) const override;
  Pooling pooling() const { return pooling_; }

 private:
  Pooling pooling_;
};
TORCH_MODULE(BatchNormReLUMaxPool2d);

}  // namespace lockstep::nn
