#pragma once

// What the snippets of the guide take for granted. Nothing is defined: they are compiled, and never linked or run.

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/checkpoint.h"
#include "lockstep/data.h"
#include "lockstep/lockstep.h"

#pragma GCC diagnostic ignored "-Wunused-variable"  // a snippet may end where its variable begins to be of use

namespace checkpoint = lockstep::checkpoint;
namespace data = lockstep::data;

struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x);
};

struct Batch {
  at::Tensor data, target;
};

extern lockstep::World world;
extern std::shared_ptr<lockstep::comm::Group> group;
extern std::shared_ptr<Net> model;
extern lockstep::DistributedDataParallel<std::shared_ptr<Net>> ddp;
extern lockstep::optim::Adam optimizer;
extern lockstep::checkpoint::TensorMap tensors;
extern std::vector<Batch> loader;
extern at::Tensor tensor, part;
extern std::uint64_t steps;
extern double accuracy;

double rate_at(std::uint64_t step);
Batch batch_at(std::uint64_t step, int rank);
at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target);
