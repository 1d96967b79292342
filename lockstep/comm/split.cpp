// Groups by color and key.

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/comm/renumbered_group.h"

namespace lockstep::comm {
namespace {

// What each rank says, by rank. No color is the least number there is.
std::vector<std::pair<std::int64_t, std::int64_t>> said_by_all(Group& group, std::int64_t color, std::int64_t key) {
  std::array<std::int64_t, 2> mine = {color, key};
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  for (const at::Tensor& theirs : group.all_gather(at::from_blob(mine.data(), {2}, at::kLong))) {
    const auto* words = theirs.const_data_ptr<std::int64_t>();
    all.emplace_back(words[0], words[1]);
  }
  return all;
}

}  // namespace

std::shared_ptr<Group> Group::split(std::optional<int> color, int key) {
  const std::int64_t mine = color && *color >= 0 ? *color : -1;
  const auto said = said_by_all(*this, mine, key);
  std::map<std::int64_t, std::vector<int>> ranks_of;  // by color, rising
  for (int rank = 0; rank < size(); ++rank)
    if (said[std::size_t(rank)].first >= 0) ranks_of[said[std::size_t(rank)].first].push_back(rank);
  std::shared_ptr<Group> own;
  for (const auto& [each, ranks] : ranks_of) {  // all ranks make all groups, in one order
    std::shared_ptr<Group> made = new_group(ranks);
    if (each != mine) continue;
    std::vector<int> inner_of;
    for (int place = 0; place < int(ranks.size()); ++place) inner_of.push_back(place);
    std::stable_sort(inner_of.begin(), inner_of.end(), [&said, &ranks = ranks](int a, int b) {
      return said[std::size_t(ranks[std::size_t(a)])].second < said[std::size_t(ranks[std::size_t(b)])].second;
    });
    own = renumbered(std::move(made), std::move(inner_of));
  }
  return own;
}

}  // namespace lockstep::comm
