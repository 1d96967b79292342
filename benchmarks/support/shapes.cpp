#include "benchmarks/support/shapes.h"

namespace lockstep::bench {
namespace {

void add_convolution(Shapes& shapes, const std::string& name, std::int64_t in, std::int64_t out, std::int64_t kernel) {
  shapes.push_back({name + "_weight", {out, in, kernel, kernel}});
  shapes.push_back({name + "_norm_weight", {out}});
  shapes.push_back({name + "_norm_bias", {out}});
}

}  // namespace

Shapes resnet50_shapes(int narrow) {
  Shapes shapes;
  std::int64_t in = 64 / narrow;
  add_convolution(shapes, "stem", 3, in, 7);
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = (64 << stage) / narrow;
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::string name = "stage" + std::to_string(stage + 1) + "_" + std::to_string(block);
      add_convolution(shapes, name + "_a", in, width, 1);
      add_convolution(shapes, name + "_b", width, width, 3);
      add_convolution(shapes, name + "_c", width, 4 * width, 1);
      if (block == 0) add_convolution(shapes, name + "_shortcut", in, 4 * width, 1);
      in = 4 * width;
    }
  }
  shapes.push_back({"fc_weight", {1000 / narrow, in}});
  shapes.push_back({"fc_bias", {1000 / narrow}});
  return shapes;
}

Shapes resnet18_cifar_shapes(int narrow) {
  Shapes shapes;
  std::int64_t in = 64 / narrow;
  add_convolution(shapes, "stem", 3, in, 3);
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = (64 << stage) / narrow;
    for (int block = 0; block < 2; ++block) {
      const std::string name = "stage" + std::to_string(stage + 1) + "_" + std::to_string(block);
      add_convolution(shapes, name + "_a", in, width, 3);
      add_convolution(shapes, name + "_b", width, width, 3);
      if (in != width) add_convolution(shapes, name + "_shortcut", in, width, 1);
      in = width;
    }
  }
  shapes.push_back({"fc_weight", {10, in}});
  shapes.push_back({"fc_bias", {10}});
  return shapes;
}

Shapes square_mlp_shapes(int narrow) {
  Shapes shapes;
  const std::int64_t width = 4096 / narrow;
  for (int layer = 0; layer < 6; ++layer) {
    shapes.push_back({"weight" + std::to_string(layer), {width, width}});
    shapes.push_back({"bias" + std::to_string(layer), {width}});
  }
  return shapes;
}

std::int64_t weights_of(const Shapes& shapes) {
  std::int64_t total = 0;
  for (const auto& [name, sizes] : shapes) {
    std::int64_t elements = 1;
    for (std::int64_t size : sizes) elements *= size;
    total += elements;
  }
  return total;
}

}  // namespace lockstep::bench
