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

std::int64_t weights_of(const Shapes& shapes);

}  // namespace lockstep::bench
