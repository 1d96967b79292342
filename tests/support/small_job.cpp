#include "tests/support/small_job.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <span>

#include "lockstep/state/hash.h"
#include "tests/support/ranks.h"

namespace lockstep::support {

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
  DistributedDataParallel ddp(model, group, {.shards = job.shards, .seed = 5, .amp = job.amp, .ema = job.ema});
  // An owner's bytes, each step's made of those before: a state whose hash is right has the right ones.
  std::uint64_t kept = 1;
  ddp.state().keep("chain", std::as_writable_bytes(std::span(&kept, 1)));
  const std::unique_ptr<optim::Optimizer> optimizer = job.optimizer(ddp);
  job.after_step(ddp);
  while (ddp.steps() < job.steps) {
    const SmallBatch batch = small_batch(ddp.next_step(), ddp.local_shards());
    kept = parallel::shard_seed(kept, ddp.next_step(), 0);
    for (auto& shard : ddp.shards(batch)) {
      const at::Tensor loss = torch::nn::functional::cross_entropy(ddp(shard.data), shard.target);
      loss.backward();
      ddp.record(loss.item<double>(), shard.data.size(0));
    }
    optimizer->step();
    job.after_step(ddp);
  }
  return ddp.weights_hash();
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
