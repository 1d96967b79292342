#include "lockstep/train/replicas.h"

#include <torch/nn/modules/dropout.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/models/any_model.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/train/make_model.h"

namespace lockstep::train {
namespace {

using Model = std::shared_ptr<models::ImageModel>;

// All on one where that is named, or the CPU; else one on each GPU.
std::vector<at::Device> devices_of(const Options& options, at::Device first) {
  std::vector<at::Device> devices(std::size_t(options.replicas.value()), first);
  if (options.device == "cuda")
    for (std::size_t i = 0; i < devices.size(); ++i) devices[i] = at::Device(first.type(), at::DeviceIndex(i));
  return devices;
}

class Replicated final : public models::detail::InPlaceOf {
 public:
  Replicated(const Model& model, std::vector<at::Device> devices, const std::function<Model(at::Device)>& make,
             parallel::ReplicaOptions options)
      : InPlaceOf(model), replicas_(model, std::move(devices), make, options) {}

  at::Tensor forward(at::Tensor x) override { return replicas_(std::move(x)); }

 private:
  parallel::DataParallel<Model> replicas_;
};

}  // namespace

std::shared_ptr<models::ImageModel> replicated(const Model& model, const Options& options,
                                               const models::ImageTask& task, const Additions& additions,
                                               at::Device device) {
  Options bare = options;
  bare.weights.clear();  // a replica takes over the model's with each pass
  const auto make = [&](at::Device there) {
    const Model replica = make_model(bare, task, additions);
    replica->to(there);
    return replica;
  };
  return std::make_shared<Replicated>(model, devices_of(options, device), make,
                                      parallel::ReplicaOptions{.in_order = may_draw(options, *model)});
}

bool may_draw(const Options& options, const models::ImageModel& model) {
  const auto modules = model.modules();
  return is_own_model(options) || std::any_of(modules.begin(), modules.end(), [](const auto& module) {
           return dynamic_cast<const torch::nn::DropoutImpl*>(module.get()) != nullptr;
         });
}

}  // namespace lockstep::train
