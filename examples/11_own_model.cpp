// Your own model and data set in the whole trainer, with all flags of `lockstep train`, its checkpoints and its files:
//   lockstep run -n 2 build/bin/example_11_own_model --epochs 3 --opt adam --save-every 1ep --output-dir run
//   lockstep report run -o report.html
// --help lists the flags; --model and --dataset also know the built-in ones.
#include <cmath>

#include "lockstep/lockstep.h"
#include "lockstep/train.h"

namespace train = lockstep::train;
using lockstep::data::Batch;
using lockstep::data::Split;

// Noisy sine waves of two frequencies, which are to be told apart. What is drawn for sample i depends on i alone.
struct Waves {
  std::int64_t first, count;
  std::int64_t size() const { return count; }
  Batch get(std::int64_t i) const {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(std::uint64_t(first + i));
    const std::int64_t label = i % 2;
    const at::Tensor phase = torch::rand({1}, generator) * 2 * M_PI;
    const at::Tensor wave = torch::sin(torch::linspace(0, 2 * M_PI, 64) * (label == 0 ? 3 : 4) + phase);
    return {wave + torch::randn({64}, generator), torch::tensor(label)};
  }
};

struct Net : torch::nn::Module {
  explicit Net(std::int64_t classes) : out(register_module("out", torch::nn::Linear(32, classes))) {}
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(64, 32));
  torch::nn::Linear out;
  at::Tensor forward(const at::Tensor& x) { return out(torch::dropout(torch::relu(hidden(x)), 0.1, is_training())); }
};

int main(int argc, char** argv) {
  const train::OwnModel net{"net", [](const auto& task) { return std::make_shared<Net>(task.classes); }};
  const train::OwnSet waves{.name = "waves", .classes = 2, .samples = [](const train::Opening& opening) {
                              return opening.split == Split::train ? Waves{0, 8192} : Waves{1'000'000, 2000};
                            }};
  return train::main(argc, argv, {.models = {net}, .datasets = {waves}});
}
