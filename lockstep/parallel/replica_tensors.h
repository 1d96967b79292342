#pragma once

// The parameters and buffers of a model and of its replicas.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace torch::nn {
class Module;  // its header takes ten seconds to compile
}

namespace lockstep::parallel {

class ReplicaTensors {
 public:
  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

  /// UsageError when a replica has other parameters, buffers or submodules than `source`, by name and size, or is not
  /// on its device.
  ReplicaTensors(std::shared_ptr<torch::nn::Module> source, Modules replicas, std::vector<at::Device> devices);

  /// The first `count` replicas become what the model is: parameters have its values, and its memory where they are on
  /// its device, and are trained where its are; modules are in its modes. Replica 0's buffers are the model's memory,
  /// so that it has what forward writes there; those of the others are copies.
  void refresh(int count);

  /// The parameters that are trained, in a fixed order, as of the last refresh.
  const std::vector<at::Tensor>& trained() const { return trained_; }
  /// The same of a replica: leaves. A tied parameter, which has several names, is there once: else undefined.
  const std::vector<at::Tensor>& trained(int replica) const { return trained_of_[std::size_t(replica)]; }

 private:
  void check_like_source(std::size_t replica) const;

  std::shared_ptr<torch::nn::Module> source_;
  Modules replicas_;
  std::vector<at::Device> devices_;
  std::vector<at::Tensor> trained_;
  std::vector<std::vector<at::Tensor>> trained_of_;
};

}  // namespace lockstep::parallel
