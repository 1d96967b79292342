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
  bool by_name = false;  ///< its steps take seconds: measured where it is asked for
};

/// mlp, convnet, wide_mlp_sgd, wide_mlp_adam, resnet18_cifar; by name resnet34, resnet34_b32, resnet50, resnet50_b32,
/// vgg11, encoder.
const std::vector<Workload>& workloads();
std::vector<std::string> workload_names();

/// Those that are measured where none is asked for.
std::vector<std::string> usual_workload_names();

/// How many batches are made before, of which each step takes a copy of one: 64, and fewer of large pictures.
int batches_of(const Workload& workload);

/// UsageError with the nearest name when there is no such workload.
const Workload& find_workload(const std::string& name);

}  // namespace lockstep::bench
