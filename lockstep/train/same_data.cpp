#include "lockstep/train/same_data.h"

#include <ATen/ops/from_blob.h>

#include <array>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

// Samples, classes, entries; of the set to train on, then of that to evaluate on.
using Prints = std::array<std::int64_t, 6>;

Prints prints_of(const Input& input) {
  const data::SetFingerprint &train = input.train_set, &test = input.test_set;
  return {train.samples, std::int64_t(train.classes), std::int64_t(train.entries),
          test.samples,  std::int64_t(test.classes),  std::int64_t(test.entries)};
}

// What differs at a place of Prints.
std::string difference(std::size_t place, std::int64_t theirs, std::int64_t first) {
  if (place % 3 == 0) return std::to_string(theirs) + " pictures, not " + std::to_string(first);
  return place % 3 == 1 ? "other classes" : "as many pictures and the same classes, but other labels or file names";
}

void check_ranks(Prints mine, comm::Group& group) {
  const auto all = group.all_gather(at::from_blob(mine.data(), {std::int64_t(mine.size())}, at::kLong));
  const auto* first = all[0].const_data_ptr<std::int64_t>();
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const auto* theirs = all[rank].const_data_ptr<std::int64_t>();
    for (std::size_t place = 0; place < mine.size(); ++place)
      if (theirs[place] != first[place])
        throw UsageError("rank " + std::to_string(rank) + " reads another set to " +
                         (place < 3 ? "train" : "evaluate") +
                         " on than rank 0: " + difference(place, theirs[place], first[place]));
  }
}

// Never 0, which means that nothing is known.
std::uint64_t word_of(const Prints& prints) {
  std::uint64_t hash = 0;
  for (const std::int64_t print : prints) hash = data::hash_on(hash, print);
  return hash == 0 ? 1 : hash;
}

std::atomic<std::uint64_t>& kept_word(comm::Group& group) { return group.node().segment.control().data_fingerprint; }

}  // namespace

Input checked_input(Input input, comm::Group& group) {
  const Prints prints = prints_of(input);
  check_ranks(prints, group);
  const std::uint64_t kept = kept_word(group).load(std::memory_order_acquire);
  if (kept != 0 && kept != word_of(prints))
    throw UsageError("the pictures are not those that this job began with (" + std::to_string(prints[0]) +
                     " to train on now): files were added, removed or renamed since; start a new job");
  return input;
}

void keep_with_state(const Input& input, comm::Group& group) {
  if (group.topology().local_rank == 0) kept_word(group).store(word_of(prints_of(input)), std::memory_order_release);
}

}  // namespace lockstep::train
