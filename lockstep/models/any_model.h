#pragma once

// A model of any class where one of ours is expected.

#include <torch/nn/pimpl.h>

#include <concepts>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/models/image_model.h"

namespace lockstep::models {
namespace detail {

/// The parameters, buffers and layers of a model under their own names, as if they were this one's.
class InPlaceOf : public ImageModel {
 public:
  explicit InPlaceOf(std::shared_ptr<torch::nn::Module> model)
      : ImageModel(model->name()), original_(std::move(model)) {
    for (const auto& item : original_->named_parameters(/*recurse=*/false))
      register_parameter(item.key(), item.value(), item.value().requires_grad());
    for (const auto& item : original_->named_buffers(/*recurse=*/false)) register_buffer(item.key(), item.value());
    for (const auto& item : original_->named_children()) register_module(item.key(), item.value());
  }

  void train(bool on) override {
    ImageModel::train(on);
    original_->train(on);
  }

 private:
  std::shared_ptr<torch::nn::Module> original_;
};

template <std::derived_from<torch::nn::Module> Model>
class Adapted final : public InPlaceOf {
 public:
  explicit Adapted(std::shared_ptr<Model> model) : InPlaceOf(model), model_(std::move(model)) {}

  at::Tensor forward(at::Tensor x) override { return model_->forward(std::move(x)); }

 private:
  std::shared_ptr<Model> model_;
};

}  // namespace detail

/// A std::shared_ptr to a torch::nn::Module, or a ModuleHolder of one, whose forward() makes one tensor of one tensor.
class AnyModel {
 public:
  /// UsageError when it points to nothing.
  template <std::derived_from<torch::nn::Module> Model>
  AnyModel(std::shared_ptr<Model> model) {
    if (!model) throw UsageError("a model that is none: a null pointer was given");
    if constexpr (std::derived_from<Model, ImageModel>)
      model_ = std::move(model);
    else
      model_ = std::make_shared<detail::Adapted<Model>>(std::move(model));
  }
  template <std::derived_from<torch::nn::Module> Model>
  AnyModel(const torch::nn::ModuleHolder<Model>& holder) : AnyModel(holder.ptr()) {}

  const std::shared_ptr<ImageModel>& model() const { return model_; }

 private:
  std::shared_ptr<ImageModel> model_;
};

}  // namespace lockstep::models
