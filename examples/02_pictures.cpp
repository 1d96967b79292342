// Trains on pictures that loader threads read and augment, each rank on its share of an epoch's order:
//   lockstep run -n 2 build/bin/example_02_pictures [a folder with a folder of JPEG or PNG files per class]
#include <torch/torch.h>

#include <iostream>

#include "lockstep/data/digits.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/picture_batches.h"
#include "lockstep/data/readers/image_folder.h"
#include "lockstep/data/samplers/distributed.h"
#include "lockstep/data/samplers/random.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/geometry.h"
#include "lockstep/lockstep.h"
#include "lockstep/models/registry.h"

namespace data = lockstep::data;

std::shared_ptr<const data::PictureSet> open_set(int argc, char** argv) {
  if (argc > 1) return std::make_shared<data::ImageFolder>(argv[1]);
  return std::make_shared<data::MemoryPictures>(data::make_digits(data::Split::train, 0, 10'000));
}

int main(int argc, char** argv) {
  auto world = lockstep::init();
  const auto set = open_set(argc, argv);
  const auto batches = std::make_shared<data::PictureBatches>(
      set,
      data::Compose().then(data::Resize({28, 28})).then(data::RandomCrop({.size = {28, 28}, .padding = {2, 2, 2, 2}})));
  const std::int64_t first[] = {0};
  const std::int64_t channels = batches->make(0, first).data.size(1);
  torch::manual_seed(0);
  auto model =
      lockstep::models::make_model("convnet", {.channels = channels, .classes = std::int64_t(set->classes().size())});
  lockstep::DistributedDataParallel ddp(model, world.group());
  lockstep::optim::Adam optimizer(ddp, {.lr = 1e-3});
  data::DistributedSampler sampler(set->size(), world.size(), world.rank());
  std::vector<std::vector<std::int64_t>> plan;  // the batches of both epochs, so that their numbers are those of steps
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& batch : data::cut_into_batches(sampler.indices(), 50)) plan.push_back(std::move(batch));
  }
  const std::size_t per_epoch = plan.size() / 2;
  auto step = std::size_t(ddp.next_step()) - 1;  // 0, or where a killed process left off
  data::Loader loader([=](std::int64_t k) { return batches->make(std::size_t(k) / per_epoch, plan[std::size_t(k)]); },
                      std::int64_t(step), std::int64_t(plan.size()), {.workers = 2, .prefetch = 4});
  for (double correct = 0, seen = 0; const auto batch = loader.next();) {
    const at::Tensor logits = ddp(batch->data);
    torch::nn::functional::cross_entropy(logits, batch->target).backward();
    optimizer.step();
    correct += double(logits.argmax(1).eq(batch->target).sum().item<std::int64_t>());
    seen += double(batch->target.size(0));
    if (++step % per_epoch != 0) continue;
    if (world.rank() == 0)
      std::cout << "epoch " << step / per_epoch << "  accuracy in training " << correct / seen << std::endl;
    correct = seen = 0;
  }
}
