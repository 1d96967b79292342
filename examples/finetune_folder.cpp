// Fits a ResNet-18 to a folder of photographs, with a folder per class in train/ and in val/. It starts from weights of
// another task, all but the last layer's, and writes its own, which Python reads:
//   lockstep run -n 2 --max-restarts 3 build/bin/example_finetune_folder PHOTOS OUT.safetensors [START.safetensors]
#include <iostream>

#include "lockstep/checkpoint.h"
#include "lockstep/lockstep.h"
#include "lockstep/models.h"

namespace checkpoint = lockstep::checkpoint;
namespace data = lockstep::data;

auto open_pictures(const std::string& folder, data::Compose transforms) {
  const data::NormalizeOptions imagenet{.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};
  return data::pictures(data::ImageFolder(folder),
                        {.transforms = std::move(transforms), .batch = {.normalize = imagenet}});
}

// Names and shapes must be the model's: the last layer, made for other classes, is left as the model has it.
void start_from(const std::string& file, torch::nn::Module& model) {
  checkpoint::TensorMap weights = checkpoint::read_safetensors(file);
  for (const auto& [name, tensor] : checkpoint::state_dict(model))
    if (name.starts_with("fc.")) weights[name] = tensor;
  checkpoint::load_into(model, weights, file);
}

int main(int argc, char** argv) {
  auto world = lockstep::init();
  if (argc < 3) throw lockstep::UsageError("usage: finetune_folder PHOTOS OUT.safetensors [START.safetensors]");
  const std::string photos = argv[1];
  const auto train = open_pictures(
      photos + "/train", data::Compose().then(data::RandomResizedCrop(64)).then(data::RandomHorizontalFlip()));
  const auto val = open_pictures(photos + "/val", data::Compose().then(data::Resize(72)).then(data::CenterCrop(64)));
  torch::manual_seed(0);
  const auto model = lockstep::models::make_model(
      "resnet18", {.channels = 3, .height = 64, .width = 64, .classes = std::int64_t(train->set().classes().size())});
  if (argc > 3) start_from(argv[3], *model);
  lockstep::DistributedDataParallel ddp(model, world.group(), {.shards = 4, .channels_last = true});
  data::DataLoader loader(train, ddp.part(), {.global_batch_size = 16, .shuffle = true, .num_workers = 2});
  ddp.state().keep("loader", loader.kept());
  lockstep::optim::SGD optimizer(ddp, {.lr = 0.01, .momentum = 0.9, .weight_decay = 1e-4});
  for (auto epoch = loader.epoch(); epoch < 3; ++epoch) {
    loader.set_epoch(epoch);
    for (auto& batch : loader) {
      for (auto& shard : ddp.shards(batch))
        torch::nn::functional::cross_entropy(ddp(shard.data), shard.target).backward();
      optimizer.step();
    }
    const auto found = lockstep::evaluate(ddp, val, [&](const data::Batch& batch) -> lockstep::Sums {
      return {{"correct", ddp(batch.data).argmax(1).eq(batch.target).sum().item<double>()}};
    });
    if (world.rank() == 0) std::cout << "epoch " << epoch + 1 << "  top-1 " << found.mean("correct") << std::endl;
  }
  if (world.rank() != 0) return 0;
  checkpoint::write_safetensors(argv[2], ddp.state_dict());
  std::cout << "weights " << ddp.weights_hash() << std::endl;
}
