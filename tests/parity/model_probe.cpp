// Lets the Python tests look at the built-in models: model_probe < request.json
//
// Request: {"models": [{"name", "channels", "side", "classes", "draw"}]}. Answer: a line of JSON per model:
//
//   parameters, buffers   [[name, shape], ...] in the order of the module
//
// and with "draw", where the model is drawn from seed 1, pictures [3, channels, side, side] from seed 2, and each pass
// from seed 3:
//
//   state                 {name: CRC-32 of the new model's bytes}; then the last layer's weight is drawn anew from seed
//   4,
//                         since a vision transformer's is zero
//   eval, train           the logits; train is with the gradient of their cross entropy with classes 0, 1, 2
//   gradients, trained    {name: CRC-32}, behind the latter: of the gradients and of the buffers
//   norms                 {name: 2-norm of the gradient}
//
// Without "draw" nothing is drawn, so that the largest model costs nothing.

#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/nn/functional/loss.h>
#include <zlib.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/models/registry.h"

namespace {

using nlohmann::json;
using namespace lockstep;

constexpr std::int64_t kPictures = 3;

using Named = torch::OrderedDict<std::string, at::Tensor>;

json shapes(const Named& tensors) {
  json found = json::array();
  for (const auto& item : tensors) found.push_back({item.key(), item.value().sizes().vec()});
  return found;
}

void add_checksums(json& to, const Named& tensors) {
  for (const auto& item : tensors) {
    const at::Tensor bytes = item.value().contiguous();
    to[item.key()] = crc32_z(0, static_cast<const Bytef*>(bytes.data_ptr()), bytes.nbytes());
  }
}

json numbers(const at::Tensor& x) {
  const at::Tensor row = x.detach().contiguous();
  return std::vector<float>(row.data_ptr<float>(), row.data_ptr<float>() + row.numel());
}

void compute(json& answer, models::ImageModel& model, const models::ImageTask& task) {
  answer["state"] = answer["gradients"] = answer["trained"] = answer["norms"] = json::object();
  add_checksums(answer["state"], model.named_parameters());
  add_checksums(answer["state"], model.named_buffers());
  torch::manual_seed(4);
  at::Tensor(model.parameters().end()[-2].detach()).normal_();
  torch::manual_seed(2);
  const at::Tensor pictures = at::rand({kPictures, task.channels, task.height, task.width});
  model.eval();
  torch::manual_seed(3);
  answer["eval"] = numbers(model.forward(pictures));
  model.train();
  torch::manual_seed(3);
  const at::Tensor logits = model.forward(pictures);
  answer["train"] = numbers(logits);
  torch::nn::functional::cross_entropy(logits, at::arange(kPictures)).backward();
  Named gradients;
  for (const auto& item : model.named_parameters()) gradients.insert(item.key(), item.value().grad());
  add_checksums(answer["gradients"], gradients);
  for (const auto& item : gradients) answer["norms"][item.key()] = item.value().norm().item<double>();
  add_checksums(answer["trained"], model.named_buffers());
}

// As long as it lives, tensors are not filled with random numbers.
torch::Library without_draws() {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  const auto leave = [](at::Tensor& self, double, double, std::optional<at::Generator>) -> at::Tensor& { return self; };
  library.impl("uniform_", leave);
  library.impl("normal_", leave);
  return library;
}

json look_at(const json& wanted) {
  const models::ImageTask task{.channels = wanted.at("channels"),
                               .height = wanted.at("side"),
                               .width = wanted.at("side"),
                               .classes = wanted.at("classes")};
  const bool draw = wanted.at("draw");
  std::optional<torch::Library> no_draws;
  if (!draw) no_draws.emplace(without_draws());
  torch::manual_seed(1);
  const auto model = models::make_model(wanted.at("name"), task);
  json answer = {{"parameters", shapes(model->named_parameters())}, {"buffers", shapes(model->named_buffers())}};
  if (draw) compute(answer, *model, task);
  return answer;
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const json request = json::parse(std::cin);
  for (const json& wanted : request.at("models")) std::cout << look_at(wanted) << std::endl;
}
