// Fits a table of numbers, whose last column is to be told from the others:
//   mpirun -n 2 build/bin/example_03_table table.csv
#include <torch/torch.h>

#include <iomanip>
#include <iostream>

#include "lockstep/data.h"
#include "lockstep/lockstep.h"

namespace data = lockstep::data;

constexpr std::int64_t kBatch = 60;  // rows of a step, of all ranks together

struct Net : torch::nn::Module {
  explicit Net(std::int64_t columns) : hidden(columns, 32), out(32, 1) {
    register_module("hidden", hidden);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) { return out(torch::tanh(hidden(x))).squeeze(1); }
  torch::nn::Linear hidden, out;
};

data::Table open_table(int argc, char** argv) {
  if (argc > 1) return data::read_table(argv[1], {.label = std::int64_t(-1), .label_dtype = at::kFloat});
  torch::manual_seed(1);
  data::Table table{.data = torch::rand({1000, 4}), .total_rows = 1000};
  table.target = table.data.sum(1) - 2;
  return table;
}

int main(int argc, char** argv) {
  auto world = lockstep::init();
  const data::Table table = open_table(argc, argv);
  torch::manual_seed(0);
  auto model = std::make_shared<Net>(table.data.size(1));
  lockstep::DistributedDataParallel ddp(model, world.group());
  lockstep::optim::Adam optimizer(ddp, {.lr = 1e-2});
  const std::int64_t share = kBatch / world.size();
  for (auto step = std::int64_t(ddp.next_step()); step <= 500; ++step) {
    const at::Tensor rows = torch::arange(share) + (step * kBatch + world.rank() * share);
    const at::Tensor taken = torch::remainder(rows, table.total_rows);  // from the top again where the table ends
    const at::Tensor target = table.target.index_select(0, taken);
    const at::Tensor loss = torch::nn::functional::mse_loss(ddp(table.data.index_select(0, taken)), target);
    loss.backward();
    optimizer.step();
    if (step % 250 == 0 && world.rank() == 0)
      std::cout << "step " << step << "  loss " << std::fixed << std::setprecision(4) << loss.item<float>()
                << std::endl;
  }
}
