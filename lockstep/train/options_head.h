#pragma once

// --head: the layers that take the place of a model's last one. Without libtorch, as options.h.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::train {

struct HeadLayer {
  enum class Kind { linear, relu, gelu, tanh, dropout };
  Kind kind = Kind::linear;
  std::int64_t outputs = 0;  ///< of a linear layer, >= 1
  double p = 0;              ///< of dropout, 0 to 1
};

/// The layers of "512,relu,3": a number is a linear layer with so many outputs; relu, gelu, tanh, dropout=0.5. The last
/// one is linear. UsageError that names what is wrong.
std::vector<HeadLayer> head_layers(const std::string& text);

}  // namespace lockstep::train
