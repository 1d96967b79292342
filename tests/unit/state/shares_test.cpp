// Layouts of nodes that share out the optimizer's state.

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/state/layout.h"

namespace lockstep::state {
namespace {

Layout in_shares(int shares = 1, int share = 0, bool copied = false) {
  std::vector<TensorSpec> parameters{{.name = "a", .sizes = {35}, .strides = {1}},
                                     {.name = "c", .sizes = {100'003}, .strides = {1}}};
  LayoutOptions options{.shards = 3, .slots = 3, .optimizer_arrays = 2, .shares = shares, .share = share};
  options.copied = copied;
  return {std::move(parameters), {}, std::move(options)};
}

// Seven blocks, the last of them not whole.
TEST(Shares, TakeRoomForOneOfThemAlone) {
  const Layout whole = in_shares();
  for (const int shares : {2, 3, 4, 7, 9}) {
    std::size_t at = 0;
    for (int number = 0; number < shares; ++number) {
      const Layout layout = in_shares(shares, number);
      EXPECT_EQ(layout.elements(), whole.elements());
      EXPECT_EQ(layout.fingerprint(), whole.fingerprint());
      const Slice mine = layout.share();
      EXPECT_EQ(mine.begin, at);
      EXPECT_TRUE(mine.end % Layout::kBlock == 0 || mine.end == layout.elements());
      at = mine.end;
      for (const int buffer : {0, 1}) {
        const auto place_of = [&](int array, std::size_t element) {
          return layout.optimizer_array(buffer, array) + element * sizeof(float);
        };
        const auto begin = [&](int array) { return place_of(array, mine.begin); };
        const auto end = [&](int array) { return place_of(array, mine.end); };
        EXPECT_EQ(begin(0), layout.optimizer_area(buffer));
        EXPECT_GE(begin(0), layout.weights(buffer) + layout.elements() * sizeof(float));
        EXPECT_GE(begin(1), end(0));
        EXPECT_EQ(layout.optimizer_array(buffer, 1) % 64, 0u);
        EXPECT_NE(begin(1) % 4096, begin(0) % 4096) << "arrays would begin at one place of a page";
        EXPECT_GE(layout.average(buffer), end(1));
        EXPECT_EQ(layout.average(buffer), layout.optimizer_area(buffer) + layout.optimizer_bytes());
        const std::vector<Slice> common = layout.common(buffer);
        ASSERT_EQ(common.size(), 2u);
        EXPECT_EQ(common[0], (Slice{layout.weights(buffer), layout.optimizer_area(buffer)}));
        EXPECT_EQ(common[1], (Slice{layout.average(buffer), layout.weights(buffer) + layout.content_bytes()}));
      }
      // That of the largest share on each node, whichever it has.
      const std::size_t blocks = (layout.blocks() + std::size_t(shares) - 1) / std::size_t(shares);
      EXPECT_LE(layout.optimizer_bytes(), 2 * (blocks * Layout::kBlock * sizeof(float) + 2 * 4096));
      std::size_t covered = mine.begin;
      for (int rank = 0; rank < 3; ++rank) {
        const Slice slice = layout.slice_of_share(number, rank, 3);
        EXPECT_EQ(slice.begin, covered);
        EXPECT_TRUE(slice.end % Layout::kBlock == 0 || slice.end == mine.end);
        covered = slice.end;
      }
      EXPECT_EQ(covered, mine.end);
    }
    EXPECT_EQ(at, whole.elements());
  }
  const Layout third = whole.with_share(2, 3, false);
  EXPECT_EQ(third.share(), whole.with_share(0, 3, false).share(2));
  EXPECT_EQ(third.weights(1), in_shares(3, 2).weights(1));
  EXPECT_EQ(third.with_share(0, 1, false).weights(1), whole.weights(1));
  for (std::size_t range = 0; range < 2; ++range)
    EXPECT_EQ(third.beside_optimizer(0)[range].end - third.beside_optimizer(0)[range].begin,
              whole.beside_optimizer(1)[range].end - whole.beside_optimizer(1)[range].begin);
  EXPECT_EQ(whole.share(), (Slice{0, whole.elements()}));
  EXPECT_EQ(whole.common(1), (std::vector<Slice>{{whole.weights(1), whole.weights(1) + whole.content_bytes()}}));
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(whole.slice_of_share(0, rank, 4), whole.slice(rank, 4));
}

// Behind its own share a node has the one before it, round and round.
TEST(Shares, MayBeCopiedByTheNextNode) {
  for (const int shares : {2, 3, 9})
    for (int number = 0; number < shares; ++number) {
      const Layout layout = in_shares(shares, number, /*copied=*/true);
      const int copied = (number + shares - 1) % shares;
      EXPECT_EQ(layout.copied_share(), copied);
      EXPECT_EQ(layout.optimizer_bytes(), 2 * in_shares(shares, number).optimizer_bytes());
      const Slice mine = layout.share(), other = layout.share(copied);
      std::size_t at = layout.optimizer_area(1);
      for (const int array : {0, 1}) {
        EXPECT_GE(layout.optimizer_array(1, array) + mine.begin * sizeof(float), at);
        at = layout.optimizer_array(1, array) + mine.end * sizeof(float);
      }
      for (const int array : {0, 1}) {
        EXPECT_GE(layout.copied_array(1, array) + other.begin * sizeof(float), at);
        EXPECT_EQ(layout.copied_array(1, array) % 64, 0u);
        at = layout.copied_array(1, array) + other.end * sizeof(float);
      }
      EXPECT_GE(layout.average(1), at);
    }
}

}  // namespace
}  // namespace lockstep::state
