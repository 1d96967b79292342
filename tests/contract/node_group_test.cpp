// What groups over several nodes are made of, beyond the contract of every group.

#include "lockstep/comm/node_group.h"

#include <cstring>
#include <vector>

#include "tests/contract/group_contract.h"

namespace lockstep::comm {
namespace {

CollectiveNote note_with(std::int64_t elements) {
  return {.collective = Collective::all_gather, .dtype = std::int32_t(at::kByte), .elements = elements};
}

// Of what travels in a post, in one chunk and in several, with a rest; and of elements as wide as a chunk.
TEST_P(GroupContract, TheRanksOfANodeSeeWhatAllGive) {
  run([](auto group) {
    auto* const node = dynamic_cast<NodeGroup*>(group.get());
    if (node == nullptr) return;
    struct Load {
      std::size_t elements, width;
    };
    for (const Load& load : {Load{0, 4}, Load{3, 4}, Load{70'001, 8}, Load{3, NodeGroup::kWidest}}) {
      const std::size_t width = load.width;
      const auto value = [&](int rank, std::size_t element) { return std::uint8_t(element + 7 * std::size_t(rank)); };
      std::size_t seen = 0;
      node->exchange_bytes(
          note_with(std::int64_t(load.elements)), load.elements, width,
          [&](std::byte* part, std::size_t first, std::size_t n) {
            for (std::size_t i = 0; i < n; ++i) std::memset(part + i * width, value(group->rank(), first + i), width);
          },
          [&](const std::vector<std::byte*>& parts, std::size_t first, std::size_t n) {
            ASSERT_EQ(first, seen);
            seen += n;
            ASSERT_EQ(parts.size(), std::size_t(group->size()));
            for (int rank = 0; rank < group->size(); ++rank)
              for (std::size_t i = 0; i < n; ++i)
                ASSERT_EQ(parts[std::size_t(rank)][(i + 1) * width - 1], std::byte(value(rank, first + i)));
          });
      EXPECT_EQ(seen, load.elements);
    }
  });
}

TEST_P(GroupContract, TheRanksOfANodeAreToldOfOneThatCallsSomethingElse) {
  if (GetParam().ranks == 1) return;
  run([](auto group) {
    auto* const node = dynamic_cast<NodeGroup*>(group.get());
    if (node == nullptr) return;
    const std::string told = failure_of([&] {
      node->exchange_bytes(
          note_with(group->rank() == 0 ? 10 : 11), 0, 1, [](std::byte*, std::size_t, std::size_t) {},
          [](const std::vector<std::byte*>&, std::size_t, std::size_t) {});
    });
    EXPECT_NE(told.find("all_gather(10 x Byte"), std::string::npos) << told;
    EXPECT_NE(told.find("all_gather(11 x Byte"), std::string::npos) << told;
  });
}

}  // namespace
}  // namespace lockstep::comm
