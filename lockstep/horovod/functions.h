#pragma once

// What a program sends once, before it trains: weights, the optimizer's state, objects. Horovod's names.

#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>

#include <string>
#include <vector>

#include "lockstep/horovod/session.h"

namespace lockstep::horovod {

/// Replaces the tensors by those of `root_rank`. Of a module its parameters and buffers, what its state_dict() has in
/// Python. All ranks have as many, of the same shapes and dtypes: an Error that names both sides.
void broadcast_parameters(const torch::nn::Module& module, int root_rank = 0, const ProcessSet& set = {});
void broadcast_parameters(const torch::OrderedDict<std::string, at::Tensor>& parameters, int root_rank = 0,
                          const ProcessSet& set = {});
void broadcast_parameters(const std::vector<at::Tensor>& parameters, int root_rank = 0, const ProcessSet& set = {});

/// Replaces state and options (learning rates among them) by those of `root_rank`: any optimizer of torch::optim over
/// the same parameters in the same order.
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root_rank = 0, const ProcessSet& set = {});

/// Anything that torch can pickle: numbers, strings, tensors, lists and dicts of them. Only the root's counts.
at::IValue broadcast_object(const at::IValue& object, int root_rank = 0, const ProcessSet& set = {});
/// The objects of all ranks, by rank.
std::vector<at::IValue> allgather_object(const at::IValue& object, const ProcessSet& set = {});

}  // namespace lockstep::horovod
