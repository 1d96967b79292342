#pragma once

// What the snippets of the guide take for granted. Nothing is defined: they are compiled, and never linked or run.

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint.h"
#include "lockstep/data.h"
#include "lockstep/horovod.h"
#include "lockstep/lockstep.h"
#include "lockstep/train.h"

#pragma GCC diagnostic ignored "-Wunused-variable"  // a snippet may end where its variable begins to be of use

namespace checkpoint = lockstep::checkpoint;
namespace data = lockstep::data;
namespace hvd = lockstep::horovod;
namespace train = lockstep::train;

struct Net : torch::nn::Module {
  torch::nn::Linear fc1;
  at::Tensor forward(const at::Tensor& x);
};

struct Classifier : Net {
  explicit Classifier(std::int64_t classes);
};

using data::Batch;

extern int argc;
extern char** argv;

extern lockstep::World world;
extern std::shared_ptr<lockstep::comm::Group> group;
extern std::shared_ptr<Net> model;
extern lockstep::DistributedDataParallel<std::shared_ptr<Net>> ddp;
extern lockstep::optim::Adam optimizer;
extern lockstep::checkpoint::TensorMap tensors;
extern data::DataLoader loader;
extern Batch batch;
extern train::Trainer trainer;
extern std::shared_ptr<const data::TensorBatches> test;
extern lockstep::evaluation::Totals found;
extern at::Tensor tensor, part, output, x, labels;
extern std::shared_ptr<const data::PictureSet> set;
extern std::shared_ptr<const data::PictureBatches> batches;
extern std::vector<std::int64_t> indices;
extern std::int64_t first_epoch, epochs, batch_size, k, classes, step;
extern std::uint64_t epoch, number;
extern std::int64_t samples_since_the_last_call;
extern bool resumed;
extern std::string line;
extern std::uint64_t steps;
extern double accuracy, loss, rmse;

lockstep::comm::Topology my_topology();

double rate_at(std::uint64_t step);
Batch batch_at(std::uint64_t step, int rank);
at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target);
