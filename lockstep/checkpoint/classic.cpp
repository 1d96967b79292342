#include "lockstep/checkpoint/classic.h"

#include <ATen/Parallel.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/agree.h"
#include "lockstep/checkpoint/contents.h"
#include "lockstep/checkpoint/hook_files.h"
#include "lockstep/checkpoint/random_state.h"
#include "lockstep/checkpoint/torch_optimizer.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/comm/collectives.h"

namespace lockstep::checkpoint {
namespace {

using parallel::ExponentialMovingAverage;

void require_classic(parallel::Engine& engine) {
  if (engine.state().shared() != nullptr)
    throw UsageError("checkpoint: the model has an optimizer of lockstep::optim, and one of torch::optim was given");
}

// What the module has as its weights would be the average.
void require_hidden(const ExponentialMovingAverage* average) {
  if (average != nullptr && average->is_shown())
    throw UsageError("checkpoint: the module shows its averaged weights; save and resume when it has its own again");
}

void check_kept(const SavedState& saved, parallel::Engine& engine, const std::string& path) {
  std::map<std::string, std::size_t> theirs, ours;
  for (const auto& [name, bytes] : saved.kept) theirs.emplace(name, bytes.size());
  for (const auto& [name, memory] : engine.state().kept()) ours.emplace(name, memory.size());
  if (theirs == ours) return;
  const auto list = [](const std::map<std::string, std::size_t>& kept) {
    std::vector<std::string> words;
    for (const auto& [name, bytes] : kept)
      words.push_back("'" + base::shown(name) + "' (" + std::to_string(bytes) + ")");
    return words.empty() ? std::string("none") : base::join(words);
  };
  throw UsageError("checkpoint '" + path + "' is of another job: it keeps the bytes " + list(theirs) + ", here " +
                   list(ours));
}

void check_job(const SavedState& saved, parallel::Engine& engine, const torch::optim::Optimizer& optimizer,
               bool average, const std::string& path) {
  const auto compare = [&](const char* what, const std::string& theirs, const std::string& ours) {
    if (theirs != ours)
      throw UsageError("checkpoint '" + path + "' is of another job: its " + what + " is " + base::shown(theirs) +
                       ", here " + ours);
  };
  compare("seed", std::to_string(saved.seed), std::to_string(engine.options().seed));
  compare("optimizer", saved.optimizer, kind_of(optimizer));
  compare("average of the weights", saved.average ? "there" : "missing", average ? "there" : "missing");
  check_kept(saved, engine, path);
}

// What a checkpoint says becomes this rank's; its own JSON is returned. Weights change when all the rest has fitted.
std::string take_over(const std::string& path, parallel::Engine& engine, torch::optim::Optimizer& optimizer,
                      ExponentialMovingAverage* average) {
  const SavedState saved = read_state(path);
  check_job(saved, engine, optimizer, average != nullptr, path);
  const std::string weights = path + "/" + kModelName, moments = path + "/" + kOptimizerName;
  const std::string averaged = path + "/" + kAverageName;
  const TensorMap tensors = read_safetensors(weights);
  check_fits(engine.state_dict(), tensors, "'" + weights + "'");
  const TensorMap averages = average != nullptr ? read_safetensors(averaged) : TensorMap();
  if (average != nullptr) check_fits(average->state_dict(), averages, "'" + averaged + "'");
  resume_memory(engine, path);
  set_state(optimizer, engine.parameters(), read_safetensors(moments), "'" + moments + "'");
  resume_random_state(engine.group(), path, engine.device());
  if (average != nullptr) average->load_state_dict(averages, saved.average_updates);
  load_into(engine.module(), tensors, "'" + weights + "'");
  for (const auto& [name, memory] : engine.state().kept())
    std::memcpy(memory.data(), saved.kept.at(name).data(), memory.size());
  if (engine.group().rank() == 0) tell_other_bits(path, saved, engine);
  return saved.extra;
}

// The first rank's problem, on all of them: one that alone cannot read a file leaves nobody waiting.
void throw_alike(comm::Group& group, const std::string& problem) {
  const std::vector<std::string> all = comm::all_gather_bytes(group, problem);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty())
      throw UsageError(all[rank] == problem ? problem : "rank " + std::to_string(rank) + ": " + all[rank]);
}

Saved save_all(const std::string& folder, parallel::Engine& engine, const torch::optim::Optimizer& optimizer,
               const ExponentialMovingAverage* average, std::uint64_t step, const SaveOptions& options) {
  require_classic(engine);
  require_hidden(average);
  SavedState state{.step = step,
                   .seed = engine.options().seed,
                   .shards = engine.shards(),
                   .threads = at::get_num_threads(),
                   .optimizer = kind_of(optimizer),
                   .average = average != nullptr,
                   .average_updates = average != nullptr ? average->updates() : 0,
                   .versions = versions(),
                   .metric = options.metric,
                   .extra = options.extra};
  format_state(state);  // on all ranks: each has the same error
  check_place(engine, options);
  const TensorMap weights = on_host(engine.state_dict());
  const TensorMap averages = average != nullptr ? on_host(average->state_dict()) : TensorMap();
  if (average != nullptr) check_fits(weights, averages, "checkpoint: the average");
  const TensorMap random = gathered_random_states(engine.group(), engine.device());
  const auto hooks = gathered_memories(engine);
  if (engine.group().rank() != 0) return {};
  hold_or_abort(folder, engine.group());
  for (const auto& [name, memory] : engine.state().kept())
    state.kept.emplace(name, std::string(reinterpret_cast<const char*>(memory.data()), memory.size()));
  state.place = numbers_in(state.kept, options.place);
  const TensorMap moments = on_host(state_of(optimizer, engine.parameters()));  // lives until all is written
  Contents contents{
      .state = std::move(state),
      .files = {{kModelName, bytes_of(weights)}, {kOptimizerName, bytes_of(moments)}, {kRandomName, bytes_of(random)}}};
  if (average != nullptr) contents.files.push_back({kAverageName, bytes_of(averages)});
  for (std::size_t rank = 0; rank < hooks.size(); ++rank)
    contents.files.push_back({hook_name(int(rank)), bytes_of(hooks[rank])});
  return written(folder, contents, options.retention);
}

Resumed resume_all(const std::string& folder, parallel::Engine& engine, torch::optim::Optimizer& optimizer,
                   ExponentialMovingAverage* average, const std::string& which) {
  require_classic(engine);
  require_hidden(average);
  Resumed resumed = found_by_all(engine.group(), folder, which);
  if (resumed.path.empty()) return resumed;
  std::string problem;
  try {
    resumed.extra = take_over(resumed.path, engine, optimizer, average);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  throw_alike(engine.group(), problem);
  return resumed;
}

}  // namespace

Saved save(const std::string& folder, parallel::Engine& engine, const torch::optim::Optimizer& optimizer,
           std::uint64_t step, const SaveOptions& options) {
  return save_all(folder, engine, optimizer, nullptr, step, options);
}

Saved save(const std::string& folder, parallel::Engine& engine, const torch::optim::Optimizer& optimizer,
           const ExponentialMovingAverage& average, std::uint64_t step, const SaveOptions& options) {
  return save_all(folder, engine, optimizer, &average, step, options);
}

Resumed resume(const std::string& folder, parallel::Engine& engine, torch::optim::Optimizer& optimizer,
               const std::string& which) {
  return resume_all(folder, engine, optimizer, nullptr, which);
}

Resumed resume(const std::string& folder, parallel::Engine& engine, torch::optim::Optimizer& optimizer,
               ExponentialMovingAverage& average, const std::string& which) {
  return resume_all(folder, engine, optimizer, &average, which);
}

}  // namespace lockstep::checkpoint
