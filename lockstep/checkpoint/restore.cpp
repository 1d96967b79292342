#include "lockstep/checkpoint/restore.h"

#include <ATen/core/grad_mode.h>

#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/agree.h"
#include "lockstep/checkpoint/safetensors_file.h"
#include "lockstep/checkpoint/safetensors_header.h"
#include "lockstep/checkpoint/store/state_json.h"
#include "lockstep/checkpoint/store/write.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/state/binding.h"

namespace lockstep::checkpoint {
namespace {

using state::Layout;

// What of the program is another than what made the checkpoint, as texts.
std::vector<std::string> differences(const SavedState& saved, const Layout& layout, const parallel::Engine& engine) {
  std::vector<std::string> found;
  const state::LayoutOptions& options = layout.options();
  const auto compare = [&](const char* what, const std::string& theirs, const std::string& ours) {
    if (theirs != ours) found.push_back(std::string(what) + " is " + brief(theirs) + ", here " + brief(ours));
  };
  compare("the seed", std::to_string(saved.seed), std::to_string(engine.options().seed));
  compare("the optimizer's kind", saved.optimizer, options.optimizer);
  compare("its state for each weight", std::to_string(saved.optimizer_arrays),
          std::to_string(options.optimizer_arrays));
  compare("an average of the weights", saved.average ? "there" : "not there", options.average ? "there" : "not there");
  for (const state::PlacedParameter& place : layout.parameters())
    if (!saved.updates.contains(place.spec.name)) found.push_back(place.spec.name + " is not trained, here it is");
  if (saved.updates.size() > layout.parameters().size()) found.push_back("it trains parameters that are frozen here");
  std::map<std::string, std::string> kept = saved.kept;
  for (const state::NamedBytes& bytes : options.bytes) {
    const auto theirs = kept.extract(bytes.name);
    if (!theirs)
      found.push_back("no bytes are kept as '" + brief(bytes.name) + "' (was it written by an earlier version?)");
    else if (theirs.mapped().size() != bytes.size)
      found.push_back(std::to_string(theirs.mapped().size()) + " bytes are kept as '" + brief(bytes.name) + "', here " +
                      std::to_string(bytes.size));
  }
  for (const auto& [name, bytes] : kept) found.push_back("bytes are kept as '" + brief(name) + "', here none are");
  return found;
}

// Reads named tensors into their places in `fresh`.
class Filler {
 public:
  Filler(const std::string& path, state::SharedState& fresh) : path_(path), fresh_(fresh), layout_(fresh.layout()) {}

  void model(const TensorMap& wanted) {
    const SafetensorsFile file = fitting(kModelName, wanted);
    Places places = weights_and_buffers(layout_.weights(0), layout_.module_buffers(0));
    for (const state::PlacedBuffer& place : layout_.frozen())
      places.push_back(placed(place.spec, layout_.frozen_area(0) + place.offset));
    file.read(std::move(places));
  }

  void average(const TensorMap& wanted) {
    fitting(kAverageName, wanted).read(weights_and_buffers(layout_.average(0), layout_.average_buffers(0)));
  }

  void optimizer() {
    TensorMap wanted;
    const int arrays = layout_.options().optimizer_arrays;
    if (in_shares()) fresh_.whole_arrays().assign(std::size_t(arrays), std::vector<float>(layout_.elements()));
    for (const state::PlacedParameter& place : layout_.parameters())
      for (int array = 0; array < arrays; ++array)
        wanted.emplace(place.spec.name + "/" + std::to_string(array),
                       state::view_of(place.spec, optimizer_state(place, array)));
    fitting(kOptimizerName, wanted).read({wanted.begin(), wanted.end()});
  }

  void rest(const SavedState& saved) {
    *fresh_.write_as<state::StepRecord>(layout_.step_record(0)) = {.step = saved.step,
                                                                   .loss = saved.loss,
                                                                   .gradient_norm = saved.gradient_norm,
                                                                   .samples = saved.samples,
                                                                   .skipped = saved.skipped};
    auto* const counts = fresh_.write_as<std::uint64_t>(layout_.step_counts(0));
    for (std::size_t i = 0; i < layout_.parameters().size(); ++i)
      counts[i] = saved.updates.at(layout_.parameters()[i].spec.name);
    const std::vector<state::NamedBytes>& kept = layout_.options().bytes;
    for (std::size_t i = 0; i < kept.size(); ++i)
      std::memcpy(fresh_.write(layout_.named_bytes(0, i)), saved.kept.at(kept[i].name).data(), kept[i].size);
  }

 private:
  using Places = SafetensorsFile::Places;

  SafetensorsFile fitting(const char* name, const TensorMap& wanted) const {
    const std::string path = path_ + "/" + name;
    SafetensorsFile file(path);
    check_fits(wanted, file.described(), "'" + path + "'");
    return file;
  }
  bool in_shares() const { return layout_.options().shares > 1; }
  // Of a state of which this node has a share alone, in the memory from which each node gets its own.
  std::byte* optimizer_state(const state::PlacedParameter& place, int array) const {
    if (!in_shares()) return fresh_.write(layout_.optimizer_array(0, array) + place.offset * sizeof(float));
    return reinterpret_cast<std::byte*>(fresh_.whole_arrays()[std::size_t(array)].data() + place.offset);
  }
  Places weights_and_buffers(std::size_t weights, std::size_t buffers) {
    Places places;
    for (const state::PlacedParameter& place : layout_.parameters())
      places.push_back(placed(place.spec, weights + place.offset * sizeof(float)));
    for (const state::PlacedBuffer& place : layout_.buffers())
      places.push_back(placed(place.spec, buffers + place.offset));
    return places;
  }
  std::pair<std::string, at::Tensor> placed(const state::TensorSpec& spec, std::size_t to) {
    return {spec.name, state::view_of(spec, fresh_.write(to))};
  }

  const std::string& path_;
  state::SharedState& fresh_;
  const Layout& layout_;
};

}  // namespace

std::uint64_t restore(const std::string& path, const parallel::Engine& engine, state::SharedState& fresh) {
  const at::NoGradGuard no_grad;
  const SavedState saved = read_state(path);
  if (const auto found = differences(saved, fresh.layout(), engine); !found.empty())
    throw UsageError("checkpoint '" + path + "' is of another job: " + base::join(found, "; "));
  tell_other_bits(path, saved, engine);
  const TensorMap wanted = engine.state_dict();
  Filler filler(path, fresh);
  filler.model(wanted);
  filler.optimizer();
  if (saved.average) filler.average(wanted);
  filler.rest(saved);
  return saved.step;
}

}  // namespace lockstep::checkpoint
