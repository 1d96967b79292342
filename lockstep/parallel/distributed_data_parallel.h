#pragma once

// DistributedDataParallel: what a user wraps around a module.
//
//   lockstep::DistributedDataParallel ddp(model, world.group());
//   lockstep::data::DataLoader loader(batches, ddp.part(), {.batch_size = 64, .shuffle = true});
//   lockstep::optim::SGD optimizer(ddp, {.lr = 0.1});
//   for (auto& batch : loader) {
//     auto loss = torch::nn::functional::cross_entropy(ddp(batch.data), batch.target);
//     loss.backward();
//     optimizer.step();
//   }
//
// With more shards than ranks, `for (auto& shard : ddp.shards(batch))` surrounds forward and
// backward, and the loss of each shard is the mean over its samples.

#include <memory>
#include <type_traits>
#include <utility>

#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/forward_scope.h"
#include "lockstep/parallel/module_pointer.h"
#include "lockstep/parallel/nested_tensors.h"

namespace lockstep::parallel {

/// The shards of one rank's batch, one after the other; samples along dimension 0.
class Shards {
 public:
  struct Shard {
    int index = 0;  ///< the logical shard
    at::Tensor data;
    at::Tensor target;  ///< none, where the batch has none
  };

  Shards(Engine& engine, at::Tensor data, at::Tensor target)
      : engine_(engine), data_(std::move(data)), target_(std::move(target)) {
    const std::int64_t samples = data_.size(0);
    const int count = engine.local_shards().count();
    if (samples % count != 0)
      throw UsageError("shards: a batch of " + std::to_string(samples) + " samples cannot be cut into this rank's " +
                       std::to_string(count) + " shards");
    if (target_.defined() && (target_.dim() == 0 || target_.size(0) != samples))
      throw UsageError("shards: a batch of " + std::to_string(samples) + " samples with a target for " +
                       (target_.dim() == 0 ? "none" : std::to_string(target_.size(0))));
    per_shard_ = samples / count;
  }

  class Iterator {
   public:
    Iterator(Shards* shards, int shard) : shards_(shards), shard_(shard) {}
    Shard& operator*() { return shards_->start(shard_); }
    Iterator& operator++() {
      ++shard_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return shard_ != other.shard_; }

   private:
    Shards* shards_;
    int shard_;
  };
  Iterator begin() { return {this, engine_.local_shards().first}; }
  Iterator end() { return {this, engine_.local_shards().last}; }

 private:
  Shard& start(int shard) {
    engine_.begin_shard(shard);
    const std::int64_t first = (shard - engine_.local_shards().first) * per_shard_;
    const auto part_of = [&](const at::Tensor& all) { return all.defined() ? all.narrow(0, first, per_shard_) : all; };
    current_ = {shard, part_of(data_), part_of(target_)};
    return current_;
  }

  Engine& engine_;
  at::Tensor data_;
  at::Tensor target_;
  std::int64_t per_shard_ = 0;
  Shard current_;
};

namespace detail {
// What a forward pass gets and gives: the scope sees tensors, of the result also those in standard containers; whatever
// else there is passes.
template <class T>
decltype(auto) forward_input(const ForwardScope& scope, T&& input) {
  if constexpr (std::is_same_v<std::remove_cvref_t<T>, at::Tensor>)
    return scope.input(std::forward<T>(input));
  else
    return std::forward<T>(input);
}
template <class T>
std::remove_cvref_t<T> forward_output(const ForwardScope& scope, T&& output) {
  if constexpr (std::is_same_v<std::remove_cvref_t<T>, at::Tensor>) {
    return scope.output(std::forward<T>(output));  // without the list, which allocates
  } else {
    std::remove_cvref_t<T> result = std::forward<T>(output);
    for (at::Tensor* const tensor : tensors_in(result))
      if (tensor->defined()) *tensor = scope.output(std::move(*tensor));
    return result;
  }
}
}  // namespace detail

/// Module: a ModulePointer. Engine has the rest of the interface.
template <class Module>
class DistributedDataParallel : public Engine {
  static_assert(ModulePointer<Module>,
                "DistributedDataParallel(module, group): module must be a torch::nn::ModuleHolder, as torch::nn::Linear"
                " is, or a std::shared_ptr to a class publicly derived from torch::nn::Module: std::make_shared<Net>(),"
                " not Net() or a plain pointer");

 public:
  DistributedDataParallel(Module module, std::shared_ptr<comm::Group> group, DataParallelOptions options = {})
      : Engine(detail::module_pointer(module), std::move(group), options), wrapped_(std::move(module)) {}
  /// The group is options.process_group.
  DistributedDataParallel(Module module, DataParallelOptions options)
      : DistributedDataParallel(std::move(module), options.process_group, options) {}

  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    begin_forward();
    const ForwardScope scope(options(), device());
    auto output =
        detail::forward_output(scope, wrapped_->forward(detail::forward_input(scope, std::forward<Inputs>(inputs))...));
    end_forward();
    return output;
  }

  /// Batch: anything with tensor members `data` and `target`.
  template <class Batch>
  [[nodiscard("loop over the shards")]] Shards shards(const Batch& batch) {
    return {*this, batch.data, batch.target};
  }
  using Engine::shards;

 private:
  Module wrapped_;
};

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::BucketOptions;
using parallel::commit_together;
using parallel::Compression;
using parallel::DataParallelOptions;
using parallel::DistributedDataParallel;
using parallel::EmaOptions;
using parallel::JoinOptions;
using parallel::MixedPrecision;
using parallel::Reduction;
}  // namespace lockstep
