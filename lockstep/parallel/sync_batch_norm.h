#pragma once

// Batch normalisation over the batches of all ranks, as torch.nn.SyncBatchNorm: statistics, outputs and gradients are
// those of BatchNorm on all ranks' samples together.
//
//   auto model = lockstep::convert_sync_batchnorm(std::make_shared<Net>(), world.group());
//   lockstep::DistributedDataParallel ddp(model, world.group());
//
// In training mode forward is a collective, and so is backward as far as it reaches the layer's input: all ranks run
// the same layers in the same order, each with a batch of any number of samples, none included. Each is one small
// message, of two numbers per channel. In evaluation mode, and in a group of one rank, the layer is a BatchNorm.
//
// With DistributedDataParallel each rank must have one shard (`shards` as many as ranks, the default); the engine
// refuses more, for a rank would normalise its shards one after the other, each with those of the others that come at
// the same time. What ranks compute depends on who has which samples only as far as sums round; with the same ranks it
// has the same bits in every run.
//
// Inputs: [samples, channels, ...] of float, double, bfloat16 or half, on the CPU, where sums are made in double, or
// all ranks' on devices, where they are made as torch.nn.SyncBatchNorm makes them: in float, and the host waits for
// nothing that the group does not wait for, but on a rank with less than two values per channel. Gradients of weight
// and bias are this rank's share, as the gradients of all other parameters; DistributedDataParallel averages them. The
// input's gradient cannot be differentiated again.
//
// Errors: UsageError for an input with another number of channels than the layer, or on another device, which the group
// then is aborted with, so that its peers are told the rank; c10::Error, PyTorch's, where all ranks together have one
// value per channel.

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <iosfwd>
#include <memory>
#include <string>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/module_pointer.h"

namespace lockstep::parallel {

/// The layer; made with torch::nn::BatchNormOptions and the group, whose ranks it normalises over. Names, defaults and
/// meaning of options, parameters and buffers are BatchNorm's. clone() makes one of the same group.
class SyncBatchNormImpl : public torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  /// UsageError without a group.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, std::shared_ptr<comm::Group> group);

  at::Tensor forward(const at::Tensor& input);
  const std::shared_ptr<comm::Group>& group() const { return group_; }
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const at::Tensor& input) override;

 private:
  std::shared_ptr<comm::Group> group_;
};
TORCH_MODULE(SyncBatchNorm);

namespace detail {
void convert_batch_norms(torch::nn::Module& module, const std::shared_ptr<comm::Group>& group);
}

/// Makes the BatchNorm1d, 2d and 3d layers in `module`, or what is derived from them, normalise over the ranks of
/// `group` from now on; torch.nn.SyncBatchNorm.convert_sync_batchnorm. The layers stay the objects that they are, for
/// in C++ members of `module` refer to them by their type: they are known by their parameters and buffers. So a clone()
/// is to be converted anew. The group must live as long as `module` is trained. Returns `module`.
///
/// A layer that stays a BatchNorm keeps one check of BatchNorm's: a single value per channel on one rank is an error,
/// also where other ranks have more. SyncBatchNorm itself has no such limit.
///
/// UsageError without a group, and for a layer that has neither weights nor running statistics.
template <ModulePointer Module>
Module convert_sync_batchnorm(Module module, const std::shared_ptr<comm::Group>& group) {
  detail::convert_batch_norms(*detail::module_pointer(module), group);
  return module;
}

/// The name of a layer of `module` that normalises over several ranks; empty: there is none. With `besides`: over
/// another group than that.
std::string synchronized_layer(const torch::nn::Module& module, const comm::Group* besides = nullptr);

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::convert_sync_batchnorm;
using parallel::SyncBatchNorm;
using parallel::SyncBatchNormImpl;
}  // namespace lockstep
