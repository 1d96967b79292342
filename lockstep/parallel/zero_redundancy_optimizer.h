#pragma once

// The state of an optimizer, shared out among the ranks (ZeRO stage 1), as
// torch.distributed.optim.ZeroRedundancyOptimizer: each rank updates its part of the parameters and sends it to the
// others.
//
//   lockstep::DistributedDataParallel ddp(model, world.group());
//   lockstep::ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(model->parameters(), world.group(),
//                                                                   torch::optim::AdamOptions(1e-3));
//
// With an optimizer of ours the state lies in memory that the ranks of a node share, once, and each rank updates its
// slice: there is nothing left to share out, and ZeroRedundancyOptimizer<lockstep::optim::Adam>(ddp, {.lr = 1e-3}) is
// that optimizer, and says so.

#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/join.h"

namespace torch::optim {
class LBFGS;
}

namespace lockstep::parallel {

/// Which rank keeps the state of each parameter, by group, by parameter: those of a group from the largest to the
/// smallest, each to the rank that has the fewest elements so far, as PyTorch does. Pure.
std::vector<std::vector<int>> partition_parameters(const std::vector<std::vector<std::int64_t>>& elements, int ranks);

/// What of the above does not depend on the kind of optimizer.
class ZeroParts {
 public:
  using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;

  /// Collective: takes memory that the ranks of a node share. UsageError for a parameter that is not dense.
  ZeroParts(const ParamGroups& groups, std::shared_ptr<comm::Group> group);

  comm::Group& group() const { return *group_; }
  /// The groups with the parameters of `rank` only.
  ParamGroups of(const ParamGroups& groups, int rank) const;
  /// Whether these have the parameters that the parts were made of.
  bool are_of(const ParamGroups& groups) const;
  /// Collective: each parameter becomes what it is on the rank that keeps its state.
  void exchange() const;
  /// Collective, in a step within a join(). Where some ranks have no inputs, the options of `groups` become those of
  /// rank `source`, and the gradients of the parameters that such a rank keeps the state of become what they are there:
  /// unscaled, clipped, whatever its loop has done to them. UsageError for options that cannot be sent.
  void follow(ParamGroups& groups, int source) const;
  /// Collective: the state of rank `source`, where it is `mine`, to all.
  std::string broadcast(const std::string& mine, int source) const;
  std::string describe() const;

 private:
  struct Placed {
    at::Tensor parameter;
    std::int64_t offset;  ///< bytes
  };
  at::Tensor place_of(const Placed& one) const;
  void share_options(ParamGroups& groups, int source) const;
  void share_gradients(int owner, int source) const;

  std::shared_ptr<comm::Group> group_;
  std::vector<std::vector<int>> owner_;      ///< by group, by parameter
  std::vector<std::vector<Placed>> placed_;  ///< by rank
  std::vector<std::int64_t> bytes_;          ///< by rank
  at::Tensor memory_;                        ///< through which one rank's parameters go after the other
};

namespace detail {
std::string saved_state(const torch::optim::Optimizer& optimizer);
void restore_state(torch::optim::Optimizer& optimizer, const std::string& saved);
/// Copies the state, tensors included, of those parameters of `to` that `from` has one of.
void copy_state(const torch::optim::Optimizer& from, torch::optim::Optimizer& to);
[[noreturn]] void refuse_partial_save();
[[noreturn]] void refuse_more_parameters();
}  // namespace detail

/// Around an optimizer of torch::optim. Its param_groups() are those of all parameters, the same on all ranks, and
/// count for every rank: set rates there, or by a scheduler. Collective: construction, step(),
/// consolidate_state_dict(). The weights are those of `Wrapped` on all parameters: each is updated by the same rule,
/// once. Among the joinables of a join() a rank without inputs updates its parameters by the gradients that a rank with
/// inputs has when it calls step(), unscaled by a GradScaler and clipped as there, with the options of its groups.
template <class Wrapped>
class ZeroRedundancyOptimizer final : public torch::optim::Optimizer, public Joinable {
  static_assert(!std::is_same_v<Wrapped, torch::optim::LBFGS>,
                "LBFGS needs all parameters at once, and cannot be shared out");

 public:
  template <class Options>
  ZeroRedundancyOptimizer(std::vector<at::Tensor> parameters, std::shared_ptr<comm::Group> process_group,
                          const Options& defaults)
      : ZeroRedundancyOptimizer(ZeroParts::ParamGroups{torch::optim::OptimizerParamGroup(std::move(parameters))},
                                std::move(process_group), defaults) {}
  /// Groups without options have the defaults.
  template <class Options>
  ZeroRedundancyOptimizer(const ZeroParts::ParamGroups& groups, std::shared_ptr<comm::Group> process_group,
                          const Options& defaults)
      : torch::optim::Optimizer(groups, std::make_unique<Options>(defaults)),
        parts_(param_groups(), std::move(process_group)),
        make_([defaults](const ZeroParts::ParamGroups& some) { return std::make_unique<Wrapped>(some, defaults); }),
        local_(make_(parts_.of(param_groups(), parts_.group().rank()))) {}

  /// Updates this rank's parameters, and makes all ranks have all.
  at::Tensor step(LossClosure closure = nullptr) override {
    if (!parts_.are_of(param_groups())) detail::refuse_more_parameters();
    at::Tensor loss;
    if (closure) {  // whose collectives come before those of the update
      const at::AutoGradMode enable(true);
      loss = closure();
    }
    Update(*this).main_hook(notify_join_context(*this).value_or(-1));
    return loss;
  }

  std::shared_ptr<JoinHook> join_hook(const JoinOptions&) override { return std::make_shared<Update>(*this); }
  comm::Group& join_process_group() const override { return parts_.group(); }

  /// UsageError: who keeps which state is settled. Make the optimizer anew.
  void add_param_group(const torch::optim::OptimizerParamGroup&) { detail::refuse_more_parameters(); }

  /// This rank's part.
  Wrapped& optim() { return *local_; }
  /// "rank 1 of 2 keeps the optimizer state of 3 of 7 parameters, 5000 of 10010 elements".
  std::string describe() const { return parts_.describe(); }

  /// Rank `to` gets the state of all parameters, for state_dict(); the others keep their own part there.
  void consolidate_state_dict(int to = 0) {
    const int rank = parts_.group().rank();
    full_ = make_(param_groups());
    detail::copy_state(*local_, *full_);
    const std::string mine = detail::saved_state(*local_);
    for (int source = 0; source < parts_.group().size(); ++source) {
      const std::string theirs = parts_.broadcast(mine, source);
      if (rank != to || source == rank) continue;
      const auto part = make_(parts_.of(param_groups(), source));
      detail::restore_state(*part, theirs);
      detail::copy_state(*part, *full_);
    }
  }
  /// The optimizer of all parameters, as of the last consolidate_state_dict(): whole on the rank that it named. To be
  /// saved: torch::save, or checkpoint::save on all ranks. UsageError before.
  const Wrapped& state_dict() const {
    if (!full_) detail::refuse_partial_save();
    return *full_;
  }
  /// This rank takes its part of the state of an optimizer of the same parameters and groups, as torch::load or
  /// checkpoint::resume has filled it, and the groups' options.
  void load_state_dict(const Wrapped& whole) {
    detail::copy_state(whole, *local_);
    for (std::size_t i = 0; i < param_groups().size(); ++i)
      param_groups()[i].set_options(whole.param_groups().at(i).options().clone());
  }

  /// UsageError: this would be a part only; save state_dict().
  void save(torch::serialize::OutputArchive&) const override { detail::refuse_partial_save(); }
  void load(torch::serialize::InputArchive&) override { detail::refuse_partial_save(); }

 private:
  // The update of all ranks.
  struct Update final : JoinHook {
    explicit Update(ZeroRedundancyOptimizer& the_optimizer) : optimizer(the_optimizer) {}
    void main_hook(int source) override {
      auto& groups = optimizer.param_groups();
      if (source >= 0) optimizer.parts_.follow(groups, source);  // within a join()
      for (std::size_t i = 0; i < groups.size(); ++i)
        optimizer.local_->param_groups()[i].set_options(std::as_const(groups[i]).options().clone());
      optimizer.local_->step();
      optimizer.parts_.exchange();
    }
    ZeroRedundancyOptimizer& optimizer;
  };

  ZeroParts parts_;
  std::function<std::unique_ptr<Wrapped>(const ZeroParts::ParamGroups&)> make_;
  std::unique_ptr<Wrapped> local_, full_;
};

/// Of an optimizer of ours, which it is: its state is shared out already.
template <class Options>
class ZeroRedundancyOptimizer<optim::FusedOptimizer<Options>> final : public optim::FusedOptimizer<Options> {
 public:
  using optim::FusedOptimizer<Options>::FusedOptimizer;

  optim::FusedOptimizer<Options>& optim() { return *this; }
  /// Nothing to do: it is whole, on every rank, and checkpoints have it.
  void consolidate_state_dict(int = 0) {}
  std::string describe() const {
    return "the optimizer state is there once for all ranks of the node, in shared memory; each updates its slice";
  }
};

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::ZeroRedundancyOptimizer;
}  // namespace lockstep
