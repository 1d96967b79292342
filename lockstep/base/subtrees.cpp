#include "lockstep/base/subtrees.h"

#include "lockstep/base/tree.h"

namespace lockstep::base {
namespace {

void collect_subtrees(int lo, int hi, ShardSpan held, std::vector<ShardSpan>& found) {
  if (lo >= held.last || hi <= held.first) return;
  if (held.first <= lo && hi <= held.last) {
    found.push_back({lo, hi});
    return;
  }
  const int middle = lo + tree_split(hi - lo);
  collect_subtrees(lo, middle, held, found);
  collect_subtrees(middle, hi, held, found);
}

}  // namespace

std::vector<ShardSpan> whole_subtrees(int leaves, ShardSpan held) {
  std::vector<ShardSpan> found;
  collect_subtrees(0, leaves, held, found);
  return found;
}

}  // namespace lockstep::base
