#pragma once

// What of a module the engine works on.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;  // its header takes ten seconds to compile
}

namespace lockstep::parallel {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// The module's parameters in registration order, PyTorch's names, each tensor once (a tied
/// one under its first name). UsageError when two different ones share memory.
NamedTensors parameters_of(const torch::nn::Module& module);

/// Another number as soon as the module has other parameters than before, as tensors, not values. Takes a few
/// nanoseconds a module and a parameter, and no memory.
std::uint64_t print_of_parameters(const torch::nn::Module& module);

/// The module's buffers (BatchNorm statistics), each once. UsageError when not contiguous.
NamedTensors buffers_of(const torch::nn::Module& module);

/// The tensors without their names.
std::vector<at::Tensor> tensors_of(const NamedTensors& named);

/// "parameter 'a'", "parameters 'a', 'b'", of many the first ones: "parameters 'a', 'b' (and 30 more)".
std::string text_of_parameters(const std::vector<std::string>& names);

/// Those that want a gradient.
NamedTensors trainable(const NamedTensors& parameters);

/// Those that do not.
NamedTensors frozen(const NamedTensors& parameters);

/// UsageError for modules that write to their parameters in forward, which shared weights do
/// not allow, and for those that give sparse gradients: Embedding and EmbeddingBag with max_norm or sparse.
void refuse_unfit_modules(const torch::nn::Module& module);

}  // namespace lockstep::parallel
