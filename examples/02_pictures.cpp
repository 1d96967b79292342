// Trains on pictures that loader threads read and augment. An epoch's order is cut into four shards, so the weights
// come out the same on one process, on two and on four, and when some are killed on the way:
//   lockstep run -n 2 --max-restarts 3 build/bin/example_02_pictures [a folder with a folder of pictures per class]
#include <torch/torch.h>

#include <iostream>

#include "lockstep/data/data_loader.h"
#include "lockstep/data/digits.h"
#include "lockstep/data/picture_batches.h"
#include "lockstep/data/readers/image_folder.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/geometry.h"
#include "lockstep/lockstep.h"
#include "lockstep/models/registry.h"

namespace data = lockstep::data;

std::shared_ptr<const data::PictureSet> open_set(int argc, char** argv) {
  if (argc > 1) return std::make_shared<data::ImageFolder>(argv[1]);
  return std::make_shared<data::MemoryPictures>(data::make_digits(data::Split::train, 0, 10'000));
}

// What the first rank has seen of this epoch.
struct Seen {
  double correct = 0, samples = 0;
};

int main(int argc, char** argv) {
  auto world = lockstep::init();
  const auto set = open_set(argc, argv);
  const auto batches = std::make_shared<data::PictureBatches>(
      set, data::Compose().then(data::Resize({28, 28})).then(data::RandomCrop(28, {.padding = 2})));
  const std::int64_t first[] = {0};
  const std::int64_t channels = batches->make(0, first).data.size(1);
  torch::manual_seed(0);
  auto model =
      lockstep::models::make_model("convnet", {.channels = channels, .classes = std::int64_t(set->classes().size())});
  lockstep::DistributedDataParallel ddp(model, world.group(), {.shards = 4});
  data::DataLoader loader(batches, ddp.part(), {.global_batch_size = 100, .shuffle = true, .num_workers = 2});
  Seen seen;
  ddp.state().keep("loader", loader.kept());  // committed with each step, found again after a restart
  ddp.state().keep("seen", seen);
  lockstep::optim::Adam optimizer(ddp, {.lr = 1e-3});
  for (auto epoch = loader.epoch(); epoch < 2; ++epoch) {
    loader.set_epoch(epoch);
    for (auto& batch : loader) {
      for (auto& shard : ddp.shards(batch)) {
        const at::Tensor logits = ddp(shard.data);
        torch::nn::functional::cross_entropy(logits, shard.target).backward();
        seen.correct += double(logits.argmax(1).eq(shard.target).sum().item<std::int64_t>());
        seen.samples += double(shard.target.size(0));
      }
      optimizer.step();
    }
    if (world.rank() == 0)
      std::cout << "epoch " << epoch + 1 << "  accuracy in training " << seen.correct / seen.samples << std::endl;
    seen = {};
  }
  if (world.rank() == 0) std::cout << "weights " << ddp.weights_hash() << std::endl;
}
