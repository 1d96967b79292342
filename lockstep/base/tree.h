#pragma once

// The fixed binary tree along which everything is summed: tree(lo, hi) splits at the
// largest power of two below hi - lo. The shape depends on the number of leaves alone,
// never on who computes, so neither do the bits.

namespace lockstep::base {

/// Where tree(lo, hi) splits, relative to lo; needs hi - lo >= 2.
[[gnu::always_inline]] constexpr int tree_split(int leaves) {
  int half = 1;
  while (half * 2 < leaves) half *= 2;
  return half;
}

/// The tree sum of leaf(lo) ... leaf(hi - 1); hi > lo.
template <class Leaf>
constexpr auto tree_sum(int lo, int hi, Leaf&& leaf) -> decltype(leaf(lo)) {
  if (hi - lo == 1) return leaf(lo);
  const int middle = lo + tree_split(hi - lo);
  return tree_sum(lo, middle, leaf) + tree_sum(middle, hi, leaf);
}

}  // namespace lockstep::base
