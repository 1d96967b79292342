#include "lockstep/parallel/pass_seeds.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <optional>

#include "lockstep/parallel/shards.h"

namespace lockstep::parallel {
namespace {

// One step of MT19937's chain (Matsumoto, Nishimura 2002), as torch's engine takes it.
constexpr std::uint32_t next_word(std::uint32_t word, std::uint32_t place) {
  return 1812433253u * (word ^ (word >> 30)) + place;
}

}  // namespace

PassSeeds::PassSeeds(std::uint64_t seed, int shard) : seed_(seed), shard_(shard), words_{} {}

// Four chains in variables of their own: as an array, the compiler makes a vector of them, which is slower where 32-bit
// products are no instruction.
void PassSeeds::look_ahead(std::uint64_t step) {
  for (std::size_t i = 0; i < kAhead; ++i) {
    const std::uint64_t seed = shard_seed(seed_, step + i, shard_);
    words_[i].seed_ = seed;
    words_[i].seeded_ = true;
    words_[i].left_ = 1;
    words_[i].next_ = 0;
    words_[i].state_[0] = std::uint32_t(seed);
  }
  static_assert(kAhead == 4);
  auto& [a, b, c, d] = words_;
  std::uint32_t at_a = a.state_[0], at_b = b.state_[0], at_c = c.state_[0], at_d = d.state_[0];
  for (std::uint32_t i = 1; i < at::MERSENNE_STATE_N; ++i) {
    a.state_[i] = at_a = next_word(at_a, i);
    b.state_[i] = at_b = next_word(at_b, i);
    c.state_[i] = at_c = next_word(at_c, i);
    d.state_[i] = at_d = next_word(at_d, i);
  }
  first_ = step;
}

void PassSeeds::begin(std::uint64_t step, std::uint64_t pass) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  if (pass > 0) return generator.set_current_seed(shard_seed(seed_, step, shard_, pass));
  if (first_ == 0 || step < first_ || step >= first_ + kAhead) look_ahead(step);
  engine_.set_data(words_[step - first_]);
  auto* const torchs = at::check_generator<at::CPUGeneratorImpl>(generator);
  torchs->set_engine(engine_);
  torchs->set_next_float_normal_sample(std::nullopt);
  torchs->set_next_double_normal_sample(std::nullopt);
}

}  // namespace lockstep::parallel
