// Lets the Python tests look at parts of Lockstep that no flag of `lockstep train` shows:
//   parity_probe digits|sampler|orders|optimizer|table|tensorboard|list < request.json
// Arrays travel in raw files, native byte order.

#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/data/digits.h"
#include "lockstep/data/readers/table.h"
#include "lockstep/data/samplers/distributed.h"
#include "lockstep/data/samplers/random.h"
#include "lockstep/data/samplers/repeated.h"
#include "lockstep/metrics/tensorboard.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/update.h"
#include "lockstep/train/input.h"

namespace {

using nlohmann::json;
using namespace lockstep;

std::ofstream create(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file.exceptions(std::ios::badbit | std::ios::failbit);
  return file;
}

template <class T>
void put(std::ofstream& file, const T* values, std::size_t count) {
  file.write(reinterpret_cast<const char*>(values), std::streamsize(count * sizeof(T)));
}

// ---- digits {"folder"}: the built-in set's training half as MNIST's files

template <class Bytes>
void write_idx(const std::string& path, const std::vector<std::uint32_t>& sizes, const Bytes& bytes) {
  std::ofstream file = create(path);
  const auto big_endian = [&](std::uint32_t x) {
    for (int shift = 24; shift >= 0; shift -= 8) file.put(char(x >> shift & 0xff));
  };
  big_endian(0x0800 | std::uint32_t(sizes.size()));
  for (const std::uint32_t size : sizes) big_endian(size);
  for (const auto byte : bytes) file.put(char(byte));
}

void digits(const json& request) {
  const std::string folder = request.at("folder");
  const data::MemoryPictures set = data::make_digits(data::Split::train);
  const auto count = std::uint32_t(set.size());
  write_idx(folder + "/train-images-idx3-ubyte", {count, 28, 28}, set.content().pixels);
  write_idx(folder + "/train-labels-idx1-ubyte", {count}, set.content().labels);
}

// ---- sampler {"output", "cases": [{size, replicas, seed, epoch, shuffle, drop_last}]}:
// the int64 indices of all ranks, one behind the other, case after case

void sampler(const json& request) {
  std::ofstream file = create(request.at("output"));
  for (const json& c : request.at("cases")) {
    const data::DistributedSamplerOptions options{
        .shuffle = c.at("shuffle"), .seed = c.at("seed"), .drop_last = c.at("drop_last")};
    for (int rank = 0; rank < c.at("replicas"); ++rank) {
      data::DistributedSampler one(c.at("size"), c.at("replicas"), rank, options);
      one.set_epoch(c.at("epoch"));
      const std::vector<std::int64_t> indices = one.indices();
      put(file, indices.data(), indices.size());
    }
  }
}

// ---- orders {"output", "cases": [{"sampler": "random"|"weighted", size or weights, replacement, num_samples,
// seed, epoch}, or {"sampler": "repeated", size, repetitions, num_samples, seed, epoch}]}: the int64 indices, case
// after case

std::unique_ptr<data::Sampler> sampler_of(const json& c) {
  if (c.at("sampler") == "weighted")
    return std::make_unique<data::WeightedRandomSampler>(
        c.at("weights").get<std::vector<double>>(),
        data::WeightedRandomSamplerOptions{c.at("num_samples"), c.at("replacement"), c.at("seed")});
  if (c.at("sampler") == "repeated")
    return std::make_unique<data::RepeatedSampler>(
        std::make_shared<data::RandomSampler>(c.at("size"), data::RandomSamplerOptions{.seed = c.at("seed")}),
        c.at("size"), data::RepeatedSamplerOptions{c.at("repetitions"), c.at("num_samples")});
  return std::make_unique<data::RandomSampler>(
      c.at("size"), data::RandomSamplerOptions{c.at("replacement"), c.at("num_samples"), c.at("seed")});
}

void orders(const json& request) {
  std::ofstream file = create(request.at("output"));
  for (const json& c : request.at("cases")) {
    const std::vector<std::int64_t> order = sampler_of(c)->order(c.at("epoch"));
    put(file, order.data(), order.size());
  }
}

// ---- optimizer {"cases": [{"name", options..., "max_norm"}], "elements", "steps", "input", "output"}: the update of
// one shard, clipped to max_norm where it is given. Input: the weights, then the gradients of each step. Output: the
// weights after each step, case after case.

struct Free {
  void operator()(float* p) const { std::free(p); }
};
using Block = std::unique_ptr<float, Free>;

Block make_block(std::size_t elements) {
  Block block(static_cast<float*>(std::aligned_alloc(64, elements * sizeof(float))));
  if (!block) throw std::bad_alloc();
  std::fill_n(block.get(), elements, 0.0f);
  return block;
}

// The options that the request has, the others as they are.
template <class Options>
optim::Rule rule_with(const json& request, std::uint64_t step) {
  Options options;
  optim::for_each_option(options, [&](const char* name, auto& option) {
    if (request.contains(name)) option = request.at(name).get<std::decay_t<decltype(*option)>>();
  });
  return rule_for(options, step);
}

optim::Rule rule_of(const json& request, std::uint64_t step) {
  static const std::map<std::string, optim::Rule (*)(const json&, std::uint64_t)> kinds = {
      {"Adadelta", rule_with<optim::AdadeltaOptions>},
      {"Adagrad", rule_with<optim::AdagradOptions>},
      {"Adam", rule_with<optim::AdamOptions>},
      {"AdamW", rule_with<optim::AdamWOptions>},
      {"Lion", rule_with<optim::LionOptions>},
      {"NAdam", rule_with<optim::NAdamOptions>},
      {"RAdam", rule_with<optim::RAdamOptions>},
      {"RMSprop", rule_with<optim::RMSpropOptions>},
      {"SGD", rule_with<optim::SGDOptions>}};
  return kinds.at(request.at("name"))(request, step);
}

float clip(const optim::Arrays& arrays, std::size_t elements, double max_norm) {
  if (max_norm == 0) return 1;
  std::vector<double> sums((elements + optim::kBlock - 1) / optim::kBlock);
  optim::power_sums(arrays, 0, elements, 2, sums.data());
  return optim::clip_coefficient(max_norm, optim::norm_of(sums.data(), sums.size(), 2));
}

// `numbers`: the weights, then the gradients of each step.
void optimize(const json& c, const float* numbers, std::size_t elements, std::uint64_t steps, std::ofstream& output) {
  const Block weights = make_block(elements), gradient = make_block(elements);
  const Block state[] = {make_block(elements), make_block(elements), make_block(elements)};
  const void* const gradients[] = {gradient.get()};
  optim::Arrays arrays{.gradients = gradients,
                       .from_weights = weights.get(),
                       .from_state = {state[0].get(), state[1].get(), state[2].get()},
                       .to_weights = weights.get(),
                       .to_state = {state[0].get(), state[1].get(), state[2].get()}};
  std::copy_n(numbers, elements, weights.get());
  for (std::uint64_t step = 1; step <= steps; ++step) {
    std::copy_n(numbers + step * elements, elements, gradient.get());
    arrays.gradient_scale = clip(arrays, elements, c.value("max_norm", 0.0));
    optim::update(rule_of(c, step), arrays, 0, elements);
    put(output, weights.get(), elements);
  }
}

void optimizer(const json& request) {
  const std::size_t elements = request.at("elements");
  const std::uint64_t steps = request.at("steps");
  std::vector<float> numbers((1 + steps) * elements);
  std::ifstream input(request.at("input").get<std::string>(), std::ios::binary);
  input.exceptions(std::ios::badbit | std::ios::failbit);
  input.read(reinterpret_cast<char*>(numbers.data()), std::streamsize(numbers.size() * sizeof(float)));
  std::ofstream output = create(request.at("output"));
  for (const json& c : request.at("cases")) optimize(c, numbers.data(), elements, steps, output);
}

// ---- table {"path", "delimiter", "dtype", "world_size", "output"}: the numbers of all ranks' slices, one behind
// the other

void table(const json& request) {
  static const std::map<std::string, at::ScalarType> kTypes = {
      {"float32", at::kFloat}, {"float64", at::kDouble}, {"int64", at::kLong}};
  const data::TableOptions options{.format = {.delimiter = request.at("delimiter").get<std::string>().at(0)},
                                   .dtype = kTypes.at(request.at("dtype"))};
  std::ofstream file = create(request.at("output"));
  const int world_size = request.at("world_size");
  for (int rank = 0; rank < world_size; ++rank) {
    const data::TableSlice slice{rank, world_size, data::Remainder::keep};
    const at::Tensor part = data::read_table(request.at("path"), options, slice).data;
    put(file, static_cast<const char*>(part.const_data_ptr()), part.nbytes());
  }
}

// ---- tensorboard {"folder"}: one of each kind that a program may add

void tensorboard(const json& request) {
  metrics::TensorBoard board(request.at("folder").get<std::string>());
  board.add_scalar("rate", 0.25, 7);
  board.add_image("dots", {.height = 1, .width = 2, .channels = 3, .values = {255, 0, 0, 0, 0, 255}}, 7);
  board.add_histogram("weights", std::vector<double>{-1, 0, 0.5, 2}, 7);
  board.add_text("note", "**so**", 7);
  board.begin_hparams({{"lr", 0.5}, {"fuse", true}, {"model", "mlp"}});
  board.end_hparams();
}

// ---- list {"path", "transforms", "epochs", "output"}: the first sample of a folder of pictures as `lockstep train
// --transforms` of this list makes it, epoch after epoch, as bytes [height, width, channels]; beside it, in .json, the
// first number that the list's first step draws in each, from 0 to 1

void list(const json& request) {
  const std::string output = request.at("output");
  const train::Options options{.model = "resnet18",
                               .dataset = "imagefolder",
                               .data_path = request.at("path"),
                               .transforms = request.at("transforms")};
  const train::Input input = train::make_input(options);
  std::ofstream file = create(output);
  json draws = json::array();
  for (std::uint64_t epoch = 0; epoch < request.at("epochs"); ++epoch) {
    const std::int64_t first[] = {0};
    const at::Tensor picture = input.train->make(epoch, first).data[0].permute({1, 2, 0});
    const at::Tensor bytes = picture.mul(255).round().to(at::kByte).contiguous();
    put(file, bytes.const_data_ptr<std::uint8_t>(), std::size_t(bytes.numel()));
    base::RandomStream random = data::transform_stream({.seed = std::uint64_t(options.seed), .epoch = epoch}, 0);
    draws.push_back(random.between(0, 1));
  }
  create(output + ".json") << draws;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string command = argc == 2 ? argv[1] : "";
    const json request = json::parse(std::cin);
    if (command == "digits") return digits(request), 0;
    if (command == "sampler") return sampler(request), 0;
    if (command == "orders") return orders(request), 0;
    if (command == "optimizer") return optimizer(request), 0;
    if (command == "table") return table(request), 0;
    if (command == "tensorboard") return tensorboard(request), 0;
    if (command == "list") return list(request), 0;
    throw std::invalid_argument(
        "usage: parity_probe digits|sampler|orders|optimizer|table|tensorboard|list < request.json");
  } catch (const std::exception& error) {
    std::cerr << "parity_probe: " << error.what() << "\n";
    return 2;
  }
}
