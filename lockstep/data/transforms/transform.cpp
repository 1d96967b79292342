#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

// Two applications of Philox: RandomStream has room for seed and index, so epoch and position are
// first mixed into the seed.
base::RandomStream transform_stream(const SampleKey& key, std::uint32_t position) {
  constexpr std::uint32_t kDomain = 0x61756732;  // the draws of transforms, apart from other uses of the seed
  const base::PhiloxCounter mixed =
      base::philox({std::uint32_t(key.epoch), std::uint32_t(key.epoch >> 32), position, kDomain},
                   {std::uint32_t(key.seed), std::uint32_t(key.seed >> 32)});
  return {std::uint64_t(mixed[1]) << 32 | mixed[0], mixed[2], key.index};
}

void Compose::apply(Picture& picture, const SampleKey& key) const {
  std::uint32_t position = 0;
  for (const auto& transform : transforms_) {
    base::RandomStream random = transform_stream(key, position++);
    transform->apply(picture, random);
  }
}

}  // namespace lockstep::data
