#include "lockstep/nn/fuse.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>

#include "lockstep/nn/batch_norm_relu.h"
#include "lockstep/nn/linear.h"

namespace lockstep::nn {
namespace {

using torch::nn::BatchNorm2dImpl;
using torch::nn::SequentialImpl;

// The layer, if it is of this type and of none derived from it.
template <class Layer>
const Layer* exactly(const torch::nn::Module& module) {
  return typeid(module) == typeid(Layer) ? dynamic_cast<const Layer*>(&module) : nullptr;
}

std::optional<Pooling> pooling_of(const torch::nn::Module& module) {
  const auto* pool = exactly<torch::nn::MaxPool2dImpl>(module);
  if (pool == nullptr) return {};
  const torch::nn::MaxPool2dOptions& options = pool->options;
  const auto is = [](const torch::ExpandingArray<2>& sizes, std::int64_t size) {
    return (*sizes)[0] == size && (*sizes)[1] == size;
  };
  if (!is(options.stride(), 2) || !is(options.dilation(), 1) || options.ceil_mode()) return {};
  if (is(options.kernel_size(), 2) && is(options.padding(), 0)) return Pooling::halving;
  if (is(options.kernel_size(), 3) && is(options.padding(), 1)) return Pooling::stem;
  return {};
}

// A Sequential with the names of what it runs.
class Row {
 public:
  explicit Row(SequentialImpl& row) : row_(row), names_(row.named_children().keys()) {}

  std::size_t size() const { return row_.size(); }

  // Null behind the end, or where another is registered by its name.
  const torch::nn::Module* at(std::size_t i) const {
    if (i >= size() || i >= names_.size()) return nullptr;
    const std::shared_ptr<torch::nn::Module> run = row_.ptr(i);
    return run == row_.named_children()[names_[i]] ? run.get() : nullptr;
  }

  template <class Layer>
  void put(std::size_t i, std::shared_ptr<Layer> layer) {
    row_.replace_module(names_[i], layer);
    *std::next(row_.begin(), std::ptrdiff_t(i)) = torch::nn::AnyModule(std::move(layer));
  }

  const std::string& name(std::size_t i) const { return names_[i]; }

 private:
  SequentialImpl& row_;
  std::vector<std::string> names_;
};

// Replaces what begins at `i`; whether something does.
std::optional<Fusion> fuse_at(Row& row, std::size_t i, const std::string& prefix) {
  const torch::nn::Module *const first = row.at(i), *const second = row.at(i + 1), *const third = row.at(i + 2);
  if (first == nullptr) return {};
  if (const auto* linear = exactly<torch::nn::LinearImpl>(*first)) {
    row.put(i, std::make_shared<LinearImpl>(*linear));
    return Fusion{prefix + row.name(i), "Linear", "lockstep::nn::Linear"};
  }
  const auto* norm = dynamic_cast<const BatchNorm2dImpl*>(first);
  if (norm == nullptr || second == nullptr || exactly<torch::nn::ReLUImpl>(*second) == nullptr) return {};
  const std::optional<Pooling> pooling = third == nullptr ? std::nullopt : pooling_of(*third);
  const auto put = [&](auto layer, const char* from, const char* name) -> std::optional<Fusion> {
    if (layer == nullptr) return {};
    row.put(i, std::move(layer));
    for (std::size_t k = 1; k <= (pooling ? 2U : 1U); ++k) row.put(i + k, std::make_shared<torch::nn::IdentityImpl>());
    return Fusion{prefix + row.name(i), from, name};
  };
  if (pooling)
    return put(fused<BatchNormReLUMaxPool2dImpl>(*norm, *pooling), "BatchNorm2d, ReLU, MaxPool2d",
               "BatchNormReLUMaxPool2d");
  return put(fused<BatchNormReLU2dImpl>(*norm), "BatchNorm2d, ReLU", "BatchNormReLU2d");
}

}  // namespace

std::vector<Fusion> fuse(torch::nn::Module& model) {
  std::vector<Fusion> done;
  const auto fuse_module = [&](torch::nn::Module& module, const std::string& prefix) {
    if (auto* const fusible = dynamic_cast<Fusible*>(&module))
      for (Fusion& fusion : fusible->fuse_layers())
        done.push_back({prefix + fusion.name, std::move(fusion.from), std::move(fusion.layer)});
    auto* const sequential = dynamic_cast<SequentialImpl*>(&module);
    if (sequential == nullptr) return;
    Row row(*sequential);
    for (std::size_t i = 0; i < row.size(); ++i)
      if (std::optional<Fusion> fusion = fuse_at(row, i, prefix)) done.push_back(std::move(*fusion));
  };
  fuse_module(model, "");
  for (const auto& item : model.named_modules("", /*include_self=*/false)) fuse_module(*item.value(), item.key() + ".");
  return done;
}

}  // namespace lockstep::nn
