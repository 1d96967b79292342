#include "lockstep/data/transforms/transform.h"

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data {

namespace {

// Uses of the seed, each with draws of its own.
enum class Domain : std::uint32_t { transforms = 0x61756732, batches = 0x6d697832 };

// Two applications of Philox: RandomStream has room for seed and index, so epoch and position are
// first mixed into the seed.
base::RandomStream derived_stream(Domain domain, std::uint64_t seed, std::uint64_t epoch, std::uint32_t position,
                                  std::uint64_t index) {
  const base::PhiloxCounter mixed =
      base::philox({std::uint32_t(epoch), std::uint32_t(epoch >> 32), position, std::uint32_t(domain)},
                   {std::uint32_t(seed), std::uint32_t(seed >> 32)});
  return {std::uint64_t(mixed[1]) << 32 | mixed[0], mixed[2], index};
}

}  // namespace

base::RandomStream transform_stream(const SampleKey& key, std::uint32_t position) {
  return derived_stream(Domain::transforms, key.seed, key.epoch, position, key.index);
}

base::RandomStream batch_stream(const BatchKey& key) {
  return derived_stream(Domain::batches, key.seed, key.epoch, key.shard, key.batch);
}

void require_probability(double p, const char* who) {
  if (p >= 0 && p <= 1) return;
  throw UsageError(std::string(who) + ": p " + std::to_string(p) + ", 0 to 1 expected");
}

void Compose::apply(Picture& picture, const SampleKey& key) const {
  std::uint32_t position = 0;
  for (const AnyTransform& transform : transforms_) {
    base::RandomStream random = transform_stream(key, position++);
    transform.apply(picture, random);
  }
}

bool Compose::only_places() const {
  int crops = 0;
  for (const AnyTransform& transform : transforms_) {
    const Placer* const placer = transform.placer();
    if (placer == nullptr) return false;
    crops += placer->crops();
  }
  return crops <= 1;
}

Placement Compose::place(Size size, const SampleKey& key) const {
  Placement placement{.box = {0, 0, size}};
  std::uint32_t position = 0;
  for (const AnyTransform& transform : transforms_) {
    base::RandomStream random = transform_stream(key, position++);
    transform.placer()->place(placement, random);
  }
  return placement;
}

}  // namespace lockstep::data
