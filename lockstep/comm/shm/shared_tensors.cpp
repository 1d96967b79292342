#include "lockstep/comm/shm/shared_tensors.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

namespace lockstep::comm {

at::Tensor SharedTensors::adopt(Region region, at::IntArrayRef sizes, at::ScalarType dtype) {
  const auto shared = std::make_shared<const Region>(std::move(region));
  const std::lock_guard lock(known_->mutex);
  known_->regions.push_back(shared);
  const auto forget = [known = known_, id = shared->id](void*) {
    std::shared_ptr<const Region> last;  // unmapped after the lock is given back
    const std::lock_guard lock(known->mutex);
    const auto found = std::find_if(known->regions.begin(), known->regions.end(),
                                    [&](const auto& candidate) { return candidate->id == id; });
    last = std::move(*found);
    known->regions.erase(found);
  };
  return at::from_blob(shared->part(rank_), sizes, forget, at::TensorOptions(dtype));
}

Place SharedTensors::find(const std::byte* data, std::size_t bytes) const {
  const std::lock_guard lock(known_->mutex);
  for (const auto& region : known_->regions) {
    const std::byte* begin = region->part(rank_);
    if (data >= begin && data + bytes <= begin + region->stride)
      return {.region = region->id, .offset = std::uint64_t(data - begin)};
  }
  return {};
}

std::byte* SharedTensors::peer_data(Place place, int peer) const {
  const std::lock_guard lock(known_->mutex);
  const auto found = std::find_if(known_->regions.begin(), known_->regions.end(),
                                  [&](const auto& candidate) { return candidate->id == place.region; });
  return (*found)->part(peer) + place.offset;
}

}  // namespace lockstep::comm
