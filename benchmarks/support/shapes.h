#pragma once

// Parameters of a size and shape that people train.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::bench {

/// (name, sizes); names have no dots, so that one flat module can register them.
using Shapes = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

/// The 161 parameters of ResNet-50 in registration order: 25,557,032 weights. With `narrow` > 1
/// every width is divided by it (for tests).
Shapes resnet50_shapes(int narrow = 1);

/// The 62 parameters of ResNet-18 with CIFAR's stem and ten classes: 11,173,962 weights.
Shapes resnet18_cifar_shapes(int narrow = 1);

/// Weights and biases of six linear layers of 4096 x 4096: 100,687,872 weights.
Shapes square_mlp_shapes(int narrow = 1);

std::int64_t weights_of(const Shapes& shapes);

}  // namespace lockstep::bench
