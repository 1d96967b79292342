#include "tests/support/small_job.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <limits>
#include <span>

#include "lockstep/comm/collectives.h"
#include "lockstep/state/hash.h"
#include "lockstep/state/shared_state.h"
#include "tests/support/ranks.h"

namespace lockstep::support {

namespace {

// What all_options adds to each step. Its owners' bytes are kept with the state.
class StepOptionsOfJob {
 public:
  StepOptionsOfJob(const SmallJob& job, const parallel::EngineState& state)
      : job_(job), scaler_({.init_scale = 1024, .growth_interval = 3, .enabled = job.all_options}) {
    if (!job_.all_options) return;
    state.keep("scaler", scaler_.kept());
    state.keep("plateau", plateau_.state);
  }
  int passes() const { return job_.all_options ? 2 : 1; }
  bool only_head(std::uint64_t step, int shard) const {
    return job_.all_options && step % 3 == 0 && (shard > 0 || step % 6 == 0);
  }
  at::Tensor scaled(const at::Tensor& loss, std::uint64_t step, int shard) const {
    const bool overflows = job_.all_options && step % 5 == 4 && shard == int(step) % job_.shards;
    return scaler_.scale(overflows ? loss * std::numeric_limits<float>::infinity() : loss);
  }
  void step(optim::Optimizer& optimizer, std::uint64_t step) {
    if (job_.all_options) {
      plateau_.step(double(parallel::shard_seed(7, step, 0) % 100));  // a metric that a restart finds again
      optimizer.set_lr(plateau_, 0);
    }
    optim::StepOptions options;
    if (job_.all_options) options = {.max_norm = 0.5, .norm_type = step % 2 == 0 ? 2.0 : 3.0, .max_value = 0.05};
    scaler_.step(optimizer, options);
    scaler_.update();
  }

 private:
  const SmallJob& job_;
  GradScaler scaler_;
  optim::ReduceLROnPlateau plateau_{.factor = 0.7, .patience = 1};
};

}  // namespace

SmallBatch small_batch(std::uint64_t step, parallel::ShardSpan shards, int samples_per_shard) {
  std::vector<at::Tensor> data, target;
  for (int shard = shards.first; shard < shards.last; ++shard) {
    auto generator = torch::make_generator<at::CPUGeneratorImpl>(parallel::shard_seed(99, step, shard));
    data.push_back(torch::randn({samples_per_shard, 20}, generator));
    target.push_back(torch::randint(5, {samples_per_shard}, generator, torch::kLong));
  }
  return {torch::cat(data), torch::cat(target)};
}

std::string run_small_job(const std::shared_ptr<comm::Group>& group, const SmallJob& job) {
  torch::manual_seed(1);
  SmallNet model(job.ballast);
  model->to(job.device);
  DistributedDataParallel ddp(model, group,
                              {.shards = job.shards,
                               .seed = 5,
                               .amp = job.amp,
                               .find_unused_parameters = job.all_options,
                               .ema = job.ema,
                               .verify_replicas_every = job.verify_every,
                               .overlap_bytes = job.overlap_bytes,
                               .reduction = job.reduction,
                               .compression = job.compression,
                               .zero1 = job.zero1,
                               .zero1_copy = job.zero1_copy});
  // An owner's bytes, each step's made of those before: a state whose hash is right has the right ones.
  std::uint64_t kept = 1;
  ddp.state().keep("chain", std::as_writable_bytes(std::span(&kept, 1)));
  StepOptionsOfJob options(job, ddp.state());
  if (job.holdable) ddp.state().make_holdable();
  const std::unique_ptr<optim::Optimizer> optimizer = job.optimizer(ddp);
  job.after_step(ddp);
  while (ddp.steps() < job.steps) {
    const std::uint64_t step = ddp.next_step();
    kept = parallel::shard_seed(kept, step, 0);
    for (int pass = 0; pass < options.passes(); ++pass)
      for (auto& shard : ddp.shards(small_batch(step + 1000 * std::uint64_t(pass), ddp.local_shards()))) {
        model->only_head = options.only_head(step, shard.index);
        const at::Tensor output = ddp(shard.data);
        const at::Tensor loss = torch::nn::functional::cross_entropy(output, shard.target.to(output.device()));
        options.scaled(loss, step, shard.index).backward();
        ddp.record(loss.item<double>(), shard.data.size(0));
      }
    options.step(*optimizer, step);
    job.after_step(ddp);
  }
  return ddp.weights_hash();
}

void flip_bit(parallel::Engine& engine, const std::string& parameter, int array) {
  const state::SharedState& shared = *engine.state().shared();
  const state::Layout& layout = shared.layout();
  const int buffer = int(shared.committed().buffer);
  const std::size_t begin = array < 0 ? layout.weights(buffer) : layout.optimizer_array(buffer, array);
  for (const state::PlacedParameter& place : layout.parameters())
    if (place.spec.name == parameter)
      *shared.write_as<std::uint32_t>(begin + place.offset * sizeof(float)) ^= std::uint32_t(1) << 20;
}

std::string hash_of(int ranks, const SmallJob& job) {
  SharedText hash;
  run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [&](auto group) {
    const std::string mine = run_small_job(group, job);
    if (group->rank() == 0) hash.set(mine);
    const auto all = group->all_gather(torch::full({1}, std::int64_t(state::hash64(mine)), torch::kLong));
    for (const at::Tensor& other : all) EXPECT_TRUE(torch::equal(other, all[0])) << "ranks hold different weights";
  });
  return hash.get();
}

std::string nodes_hash(const std::vector<int>& ranks_per_node, const SmallJob& job) {
  return nodes_hash(ranks_per_node, job, RankOptions());
}

std::string nodes_hash(const std::vector<int>& ranks_per_node, const SmallJob& job, const RankOptions& options) {
  SharedText hash;
  const auto train = [&](const std::shared_ptr<comm::Group>& group) {
    const std::string mine = run_small_job(group, job);
    if (group->rank() == 0) hash.set(mine);
    for (const std::string& theirs : comm::all_gather_bytes(*group, mine)) EXPECT_EQ(theirs, mine);
  };
  run_nodes(ranks_per_node, train, options);
  return hash.get();
}

constexpr std::size_t kSharedTextBytes = 4096;

SharedText::SharedText()
    : text_(static_cast<char*>(
          mmap(nullptr, kSharedTextBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
SharedText::~SharedText() { munmap(text_, kSharedTextBytes); }
void SharedText::set(const std::string& text) {
  if (text.size() >= kSharedTextBytes) throw Error("text too long to share");
  std::copy_n(text.c_str(), text.size() + 1, text_);
}

}  // namespace lockstep::support
