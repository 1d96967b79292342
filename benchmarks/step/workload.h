#pragma once

// What is trained in the benchmark of whole steps. benchmarks/peer/workloads.py has the same for Python.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/image_model.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep::bench {

struct Workload {
  std::string name;
  std::string title;                 ///< for people
  std::vector<std::int64_t> sample;  ///< shape of one, without the batch's dimension
  std::int64_t classes = 10;
  std::int64_t batch = 0;  ///< samples per process and step
  std::function<std::shared_ptr<models::ImageModel>()> model;
  std::function<std::unique_ptr<optim::Optimizer>(optim::Target&)> optimizer;
};

/// mlp, convnet, wide_mlp_sgd, wide_mlp_adam, resnet18_cifar.
const std::vector<Workload>& workloads();
std::vector<std::string> workload_names();

/// UsageError with the nearest name when there is no such workload.
const Workload& find_workload(const std::string& name);

}  // namespace lockstep::bench
