#pragma once

// What DistributedDataParallel takes for a module.

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <memory>

namespace lockstep::parallel {
namespace detail {

template <std::derived_from<torch::nn::Module> Impl>
std::shared_ptr<torch::nn::Module> module_pointer(const torch::nn::ModuleHolder<Impl>& holder) {
  return holder.ptr();
}
template <std::derived_from<torch::nn::Module> Impl>
std::shared_ptr<torch::nn::Module> module_pointer(const std::shared_ptr<Impl>& pointer) {
  return pointer;
}

}  // namespace detail

/// A torch::nn::ModuleHolder (torch::nn::Linear, or what TORCH_MODULE makes), or a std::shared_ptr to a class that is
/// publicly derived from torch::nn::Module.
template <class T>
concept ModulePointer = requires(const T& pointer) {
  detail::module_pointer(pointer);
};

}  // namespace lockstep::parallel
