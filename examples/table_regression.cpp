// Fits a table of numbers, whose last column is to be told from the others:
//   mpirun -n 2 build/bin/example_table_regression TABLE.csv
#include <cmath>
#include <iostream>

#include "lockstep/lockstep.h"

namespace data = lockstep::data;

data::Table open_table(int argc, char** argv) {
  if (argc > 1) return data::read_table(argv[1], {.label = std::int64_t(-1), .label_dtype = at::kFloat});
  torch::manual_seed(1);
  data::Table table{.data = torch::rand({4000, 4}) * 10};
  table.target = table.data.square().sum(1) / 10;
  return table;
}

int main(int argc, char** argv) {
  auto world = lockstep::init();
  const data::Table table = open_table(argc, argv);
  const data::Standardizer standardize(table.data);
  const auto rows = data::tensors(standardize(table.data), table.target);
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(table.data.size(1), 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
  lockstep::DistributedDataParallel ddp(net, world.group(), {.shards = 4});
  data::DataLoader loader(rows, ddp.part(), {.global_batch_size = 64, .shuffle = true});
  ddp.state().keep("loader", loader.kept());
  lockstep::optim::Adam optimizer(ddp, {.lr = 1e-2});
  for (auto epoch = loader.epoch(); epoch < 30; ++epoch) {
    loader.set_epoch(epoch);
    for (auto& batch : loader) {
      for (auto& shard : ddp.shards(batch))
        lockstep::difference(ddp(shard.data).squeeze(1), shard.target).square().mean().backward();
      optimizer.step();
    }
    const auto found = lockstep::evaluate(ddp, rows, [&](const data::Batch& batch) -> lockstep::Sums {
      const at::Tensor error = lockstep::difference(ddp(batch.data).squeeze(1), batch.target);
      return {{"squared", error.square().sum().item<double>()}};
    });
    if (world.rank() == 0)
      std::cout << "epoch " << epoch + 1 << "  rmse " << std::sqrt(found.mean("squared")) << std::endl;
  }
  if (world.rank() == 0) std::cout << "weights " << ddp.weights_hash() << std::endl;
}
