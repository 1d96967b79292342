#include "benchmarks/step/update_step.h"

#include <random>

#include "lockstep/base/segment.h"
#include "lockstep/state/binding.h"

namespace lockstep::bench {
namespace {

state::Layout layout_of(const Shapes& shapes, state::LayoutOptions options, SlotType slots) {
  std::vector<state::TensorSpec> specs;
  for (const auto& [name, sizes] : shapes) {
    std::vector<std::int64_t> strides(sizes.size(), 1);
    for (std::size_t i = sizes.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * sizes[i];
    state::TensorSpec spec{name, c10::ScalarType::Float, sizes, strides};
    if (slots == SlotType::bf16) spec.gradients = c10::ScalarType::BFloat16;
    spec.bf16_copy = slots == SlotType::bf16;
    specs.push_back(std::move(spec));
  }
  return {std::move(specs), {}, options};
}

std::uint64_t fill_weights(state::SharedState& state) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-0.1f, 0.1f);
  for (const state::PlacedParameter& parameter : state.layout().parameters()) {
    float* to = state.write_as<float>(state.layout().weights(0)) + parameter.offset;
    for (std::size_t i = 0; i < parameter.elements; ++i) to[i] = uniform(random);
  }
  return 0;
}

class UpdateStep final : public Contender {
 public:
  UpdateStep(std::shared_ptr<comm::Group> group, std::shared_ptr<state::SharedState> state, OptimizerKind kind,
             UpdateVariant variant)
      : group_(std::move(group)),
        state_(std::move(state)),
        kind_(kind),
        variant_(variant),
        bf16_(state_->layout().parts().front().gradients == at::kBFloat16) {
    for (int shard = 0; shard < group_->size(); ++shard)
      gradients_.push_back(state_->read(state_->layout().gradients(shard)));
  }

  std::string name() const override {
    const char* how = state_->layout().options().state_buffers == 1 ? "in place"
                      : variant_.stores == optim::Stores::streaming ? "streaming stores"
                                                                    : "plain stores";
    const char* gradients = !bf16_ ? "" : variant_.write_copies ? ", bf16 gradients and copies" : ", bf16 gradients";
    return std::string("update + commit, ") + how + gradients + ", " + to_string(variant_.pages);
  }
  std::string kind() const override { return "lever"; }
  double bytes() const override {
    std::size_t elements = 0;
    for (const auto& parameter : state_->layout().parameters()) elements += parameter.elements;
    const double narrower = bf16_ ? 2.0 * group_->size() - 2.0 * variant_.write_copies : 0;
    return (bytes_per_weight(kind_, group_->size()) - narrower) * double(elements);
  }
  std::string page_size() const override { return base::page_size(state_->read(0)); }

  void prepare(const Gradients& gradients) override {
    const int slot = group_->topology().local_rank;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      state::TensorSpec spec = state_->layout().parameters()[i].spec;
      spec.dtype = state_->layout().gradient_type(i);
      state::view_of(spec, state_->write(state_->layout().gradient(slot, i))).copy_(gradients[i]);
    }
  }

  void run() override {
    const state::Layout& layout = state_->layout();
    const base::Commit from = state_->committed();
    if (group_->topology().local_rank == 0) state_->choose_target(from.step + 1);
    group_->barrier();
    const int to = state_->target(from.step + 1);
    optim::Arrays arrays{.gradients = gradients_.data(),
                         .gradient_type = bf16_ ? optim::GradientType::bfloat16 : optim::GradientType::float32,
                         .slots = group_->size(),
                         .mean = 1.0f / float(group_->size()),
                         .from_weights = state_->read_as<float>(layout.weights(int(from.buffer))),
                         .to_weights = state_->write_as<float>(layout.weights(to))};
    for (int array = 0; array < layout.options().optimizer_arrays; ++array) {
      arrays.from_state[array] = state_->read_as<float>(layout.optimizer_array(int(from.buffer), array));
      arrays.to_state[array] = state_->write_as<float>(layout.optimizer_array(to, array));
    }
    if (variant_.write_copies) arrays.to_bf16 = state_->write_as<std::uint16_t>(layout.bf16_copies(to));
    const comm::Topology& place = group_->topology();
    const state::Slice mine = layout.slice(place.local_rank, place.local_world);
    optim::update(rule_for(kind_, from.step + 1), arrays, mine.begin, mine.end, variant_.stores);
    state_->vote(from.step + 1);
  }

 private:
  std::shared_ptr<comm::Group> group_;
  std::shared_ptr<state::SharedState> state_;
  OptimizerKind kind_;
  UpdateVariant variant_;
  bool bf16_;  ///< the slots; shapes of one type make one part
  std::vector<const void*> gradients_;
};

}  // namespace

std::shared_ptr<state::SharedState> make_state(const std::shared_ptr<comm::Group>& group, const Shapes& shapes,
                                               OptimizerKind kind, int state_buffers, Pages pages, SlotType slots) {
  const PagesScope scope(pages);
  const state::LayoutOptions options{.shards = group->size(),
                                     .slots = group->size(),
                                     .optimizer_arrays = state_arrays(kind),
                                     .state_buffers = state_buffers};
  return std::make_shared<state::SharedState>(group->node(), layout_of(shapes, options, slots), fill_weights);
}

std::unique_ptr<Contender> make_update_step(const std::shared_ptr<comm::Group>& group,
                                            const std::shared_ptr<state::SharedState>& state, OptimizerKind kind,
                                            UpdateVariant variant) {
  return std::make_unique<UpdateStep>(group, state, kind, variant);
}

}  // namespace lockstep::bench
