#include "lockstep/comm/network/subtree_sums.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "lockstep/base/tree.h"
#include "lockstep/comm/shm/reduction_of.h"

namespace lockstep::comm {

SubtreeSums::SubtreeSums(at::ScalarType dtype, ReduceOp op, int world)
    : width_(c10::elementSize(dtype)), complete_(reduction_of(dtype, op, world)) {
  element_ = complete_.element;
  is_wide_ = element_ == Element::bfloat16 || element_ == Element::float16;
  if (is_wide_) complete_.element = Element::float32;
  partial_ = complete_;
  partial_.scale = 1;
}

void SubtreeSums::add_up(RankSpan ranks, const std::byte* const* inputs, std::size_t elements, std::byte* to) const {
  if (elements == 0) return;
  const int count = ranks.count();
  if (count == 1) {
    std::memcpy(to, inputs[0], elements * width_);
    return;
  }
  if (!is_wide_) return tree_reduce(partial_, {inputs, count, &to, 1}, 0, elements);
  std::vector<float> wide(std::size_t(count) * kChunk);
  std::vector<const std::byte*> parts;
  for (std::size_t i = 0; i < std::size_t(count); ++i)
    parts.push_back(reinterpret_cast<const std::byte*>(wide.data() + i * kChunk));
  for (std::size_t first = 0; first < elements; first += kChunk) {
    const std::size_t n = std::min(kChunk, elements - first);
    for (std::size_t i = 0; i < std::size_t(count); ++i)
      widen(element_, inputs[i] + first * width_, n, wide.data() + i * kChunk);
    std::byte* const out = to + first * sizeof(float);
    tree_reduce(partial_, {parts.data(), count, &out, 1}, 0, n);
  }
}

void SubtreeSums::finish(std::span<const SubtreeValue> values, std::size_t elements, std::byte* to) const {
  alignas(64) std::byte room[kChunk * sizeof(float)];
  for (std::size_t first = 0; first < elements; first += kChunk) {
    const std::size_t n = std::min(kChunk, elements - first);
    value_of(values, complete_, first, n, is_wide_ ? room : to + first * width_);
    if (is_wide_) narrow(element_, reinterpret_cast<const float*>(room), n, to + first * width_);
  }
}

// Elements [first, first + n) of what the ranks of all these values add up to: where they are already, or in `room`.
const std::byte* SubtreeSums::value_of(std::span<const SubtreeValue> values, const Reduction& reduction,
                                       std::size_t first, std::size_t n, std::byte* room) const {
  const RankSpan lowest = values.front().ranks;
  if (values.size() == 1) {
    const std::byte* const at = values.front().data + first * width_of(lowest);
    if (!is_wide_ || lowest.count() > 1) return at;
    widen(element_, at, n, reinterpret_cast<float*>(room));
    return room;
  }
  const int middle = lowest.first + base::tree_split(values.back().ranks.last - lowest.first);
  const auto is_right = [&](const SubtreeValue& value) { return value.ranks.first >= middle; };
  const auto lower = std::size_t(std::ranges::find_if(values, is_right) - values.begin());
  alignas(64) std::byte right_room[kChunk * kMostWidth];
  const std::byte* const inputs[] = {value_of(values.first(lower), partial_, first, n, room),
                                     value_of(values.subspan(lower), partial_, first, n, right_room)};
  tree_reduce(reduction, {inputs, 2, &room, 1}, 0, n);
  return room;
}

}  // namespace lockstep::comm
