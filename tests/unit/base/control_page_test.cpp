#include "lockstep/base/control_page.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <vector>

namespace lockstep::base {
namespace {

class Page {
 public:
  explicit Page(int ranks = 3)
      : memory_(kControlBytes + 4096),
        page(*format_control_page(
            reinterpret_cast<void*>((reinterpret_cast<std::size_t>(memory_.data()) + 4095) / 4096 * 4096), ranks)) {}

 private:
  std::vector<std::byte> memory_;

 public:
  ControlPage& page;
};

TEST(Mark, OrdersByGenerationThenCount) {
  EXPECT_LT(make_mark(1, 1'000'000), make_mark(2, 0));
  EXPECT_LT(make_mark(2, 6), make_mark(2, 7));
  EXPECT_EQ(mark_count(make_mark(5, 77)), 77u);
  EXPECT_EQ(mark_generation(make_mark(5, 77)), 5u);
}

TEST(Commit, PacksStepAndBuffer) {
  const Commit commit{.step = 123456789, .buffer = 2};
  EXPECT_EQ(Commit::unpack(commit.pack(7)), commit);
  EXPECT_EQ(mark_generation(commit.pack(7)), 7u);
}

TEST(ControlPage, RefusesImpossibleWorlds) {
  std::vector<std::byte> memory(kControlBytes);
  EXPECT_THROW(format_control_page(memory.data(), 0), UsageError);
  EXPECT_THROW(format_control_page(memory.data(), kMaxLocalRanks + 1), UsageError);
}

TEST(ControlPage, CheckNamesWhatDiffers) {
  Page p;
  EXPECT_EQ(check_control_page(&p.page, 3), &p.page);
  EXPECT_THROW(check_control_page(&p.page, 2), Error);
  p.page.version = 99;
  EXPECT_THROW(check_control_page(&p.page, 3), Error);
  p.page.magic = 0;
  EXPECT_THROW(check_control_page(&p.page, 3), Error);
}

TEST(Abort, TheFirstFailureStays) {
  Page p;
  EXPECT_FALSE(is_aborted(p.page, 1));
  EXPECT_TRUE(raise_abort(p.page, 1, {.rank = 2, .step = 9, .phase = "vote", .cause = "lightning", .exit_code = 137}));
  EXPECT_FALSE(raise_abort(p.page, 1, {.rank = 0, .cause = "rank 2 is gone"}));
  EXPECT_TRUE(is_aborted(p.page, 1));
  const Failure failure = read_failure(p.page, 1);
  EXPECT_EQ(failure.to_string(), "rank 2, step 9, vote: lightning");
  EXPECT_EQ(failure.exit_code, 137);
}

TEST(Abort, LongCausesAreCutNotOverrun) {
  Page p;
  raise_abort(p.page, 1, {.rank = 1, .phase = std::string(500, 'p'), .cause = std::string(5000, 'c')});
  EXPECT_EQ(read_failure(p.page, 1).cause.size(), sizeof(ErrorSlot::cause) - 1);
  EXPECT_EQ(read_failure(p.page, 1).phase.size(), sizeof(ErrorSlot::phase) - 1);
}

TEST(Abort, AWriterThatDiedHalfwayStillAborts) {
  Page p;
  p.page.error.state.store(make_mark(1, std::uint64_t(ErrorSlot::State::claimed)));
  EXPECT_FALSE(raise_abort(p.page, 1, {.rank = 0, .cause = "second"}));
  EXPECT_TRUE(is_aborted(p.page, 1));
  EXPECT_NE(read_failure(p.page, 1).cause, "second");
}

// What the word says, whether or not it was filled.
Commit committed_word(const RegionWords& region) { return Commit::unpack(region.commit.load()); }

TEST(Region, IsCommittedWhenItIsFilled) {
  Page p;
  RegionWords& region = region_words(p.page, 2);
  EXPECT_EQ(&region, &p.page.regions[2]);
  EXPECT_EQ(committed(region), std::nullopt);
  region.commit.store(Commit{7, 0}.pack(1));  // by one that died before it said that the region is whole
  EXPECT_EQ(committed(region), std::nullopt);
  region.fingerprint.store(77);
  EXPECT_EQ(committed(region), (Commit{7, 0}));
  EXPECT_THROW(region_words(p.page, -1), UsageError);
  EXPECT_THROW(region_words(p.page, kRegions), UsageError);
}

TEST(Commit, WithoutAVoteTheOldStepStays) {
  Page p(2);
  ControlPage& page = p.page;
  RegionWords& region = page.regions[0];
  region.target.store(Commit{5, 1}.pack(1));
  p.page.ranks[0].votes[0].store(make_mark(1, 5));
  EXPECT_FALSE(try_commit(page, 0, 1, 5));
  EXPECT_EQ(committed_word(region).step, 0u);
  // A vote of an older generation, or for another step, is none.
  p.page.ranks[1].votes[0].store(make_mark(0, 5));
  EXPECT_FALSE(try_commit(page, 0, 1, 5));
  p.page.ranks[1].votes[0].store(make_mark(1, 4));
  EXPECT_FALSE(try_commit(page, 0, 1, 5));
  // The last vote rolls forward, whoever looks; looking again changes nothing.
  p.page.ranks[1].votes[0].store(make_mark(1, 5));
  EXPECT_TRUE(try_commit(page, 0, 1, 5));
  EXPECT_EQ(committed_word(region), (Commit{5, 1}));
  EXPECT_TRUE(try_commit(page, 0, 1, 5));
  EXPECT_EQ(committed_word(region), (Commit{5, 1}));
}

TEST(Commit, NeedsTheVoteOfRankZeroToo) {
  Page p(2);
  RegionWords& region = p.page.regions[0];
  region.target.store(Commit{5, 1}.pack(1));
  p.page.ranks[1].votes[0].store(make_mark(1, 5));
  EXPECT_FALSE(try_commit(p.page, 0, 1, 5));
  p.page.ranks[0].votes[0].store(make_mark(1, 5));
  EXPECT_TRUE(try_commit(p.page, 0, 1, 5));
}

// Whatever buffer that is; and a target that is not of exactly this step and generation is none.
TEST(Commit, IsTheTargetOfTheStep) {
  Page p(1);
  ControlPage& page = p.page;
  RegionWords& region = page.regions[0];
  p.page.ranks[0].votes[0].store(make_mark(1, 5));
  EXPECT_FALSE(try_commit(page, 0, 1, 5)) << "nobody has chosen a buffer";
  for (const Mark other : {Commit{5, 3}.pack(0), Commit{4, 3}.pack(1), Commit{6, 3}.pack(1), Commit{5, 3}.pack(2)}) {
    region.target.store(other);
    EXPECT_EQ(target_of(region, 1, 5), std::nullopt);
    EXPECT_FALSE(try_commit(page, 0, 1, 5));
  }
  region.target.store(Commit{5, 3}.pack(1));
  EXPECT_EQ(target_of(region, 1, 5), (Commit{5, 3}.pack(1)));
  EXPECT_TRUE(try_commit(page, 0, 1, 5));
  EXPECT_EQ(committed_word(region), (Commit{5, 3}));
}

TEST(Commit, TheAgentRollsForwardWhatAllHadVotedFor) {
  Page p(2);
  RegionWords& region = p.page.regions[0];
  p.page.ranks[0].votes[0].store(make_mark(1, 1));
  p.page.ranks[1].votes[0].store(make_mark(1, 1));
  roll_forward(p.page);  // no buffer was chosen: nothing to commit
  EXPECT_EQ(committed_word(region), Commit{});
  region.target.store(Commit{1, 1}.pack(1));
  roll_forward(p.page);
  EXPECT_EQ(committed_word(region), (Commit{1, 1}));
  p.page.ranks[0].votes[0].store(make_mark(1, 2));
  region.target.store(Commit{2, 0}.pack(1));
  roll_forward(p.page);  // rank 1 has not voted
  EXPECT_EQ(committed_word(region).step, 1u);
}

// Two models of one program are at steps of their own.
TEST(Commit, EachRegionHasItsOwn) {
  Page p(2);
  for (const int region : {0, 3})
    for (const int rank : {0, 1}) p.page.ranks[rank].votes[region].store(make_mark(1, 10 + std::uint64_t(region)));
  p.page.regions[0].target.store(Commit{10, 1}.pack(1));
  p.page.regions[3].target.store(Commit{13, 2}.pack(1));
  EXPECT_TRUE(try_commit(p.page, 3, 1, 13));
  EXPECT_EQ(committed_word(p.page.regions[0]), Commit{}) << "by votes for another model";
  next_generation(p.page, 1);
  EXPECT_EQ(p.page.regions[0].commit.load(), (Commit{10, 1}.pack(2)));
  EXPECT_EQ(p.page.regions[1].commit.load(), Commit{}.pack(2));
  EXPECT_EQ(p.page.regions[3].commit.load(), (Commit{13, 2}.pack(2)));
}

// Regions 0 and 2, of two ranks, at step 5 with the buffers 1 and 2 as targets.
struct TwoTogether {
  TwoTogether() {
    for (const int region : {0, 2}) {
      p.page.regions[region].together.store(0b101);
      p.page.regions[region].target.store(Commit{5, 1 + std::uint32_t(region) / 2}.pack(1));
    }
  }
  void vote(int rank, int region) { p.page.ranks[rank].votes[region].store(make_mark(1, 5)); }
  std::vector<std::uint64_t> steps() const {
    return {committed_word(p.page.regions[0]).step, committed_word(p.page.regions[2]).step};
  }

  Page p{2};
};
using Steps = std::vector<std::uint64_t>;

TEST(Commit, TogetherIsAllOrNone) {
  TwoTogether two;
  for (const auto& [rank, region] : {std::pair(0, 0), std::pair(1, 0), std::pair(0, 2)}) {
    two.vote(rank, region);
    EXPECT_FALSE(try_commit(two.p.page, 0, 1, 5));
    EXPECT_FALSE(try_commit(two.p.page, 2, 1, 5));
    roll_forward(two.p.page);
    EXPECT_EQ(two.steps(), (Steps{0, 0}));
  }
  EXPECT_TRUE(have_all_voted(two.p.page, 0, 1, 5));
  EXPECT_FALSE(have_all_voted(two.p.page, 2, 1, 5));
  two.vote(1, 2);
  EXPECT_TRUE(try_commit(two.p.page, 0, 1, 5));
  EXPECT_EQ(committed_word(two.p.page.regions[0]), (Commit{5, 1}));
  EXPECT_EQ(committed_word(two.p.page.regions[2]), (Commit{5, 2}));
  EXPECT_TRUE(try_commit(two.p.page, 2, 1, 5));
}

TEST(Commit, TogetherIsFinishedForWhoDiedInTheMiddle) {
  for (const int moved : {0, 2}) {
    TwoTogether two;
    for (const int rank : {0, 1})
      for (const int region : {0, 2}) two.vote(rank, region);
    RegionWords& words = two.p.page.regions[moved];
    words.commit.store(words.target.load());
    EXPECT_TRUE(try_commit(two.p.page, moved, 1, 5)) << "not before the other one is moved";
    EXPECT_EQ(two.steps(), (Steps{5, 5}));
  }
}

TEST(Commit, TogetherWithoutAVoteTheNextGenerationLeavesAll) {
  TwoTogether two;
  two.vote(0, 0), two.vote(1, 0), two.vote(0, 2);
  next_generation(two.p.page, 1);
  EXPECT_EQ(two.steps(), (Steps{0, 0}));
  EXPECT_EQ(two.p.page.regions[0].together.load(), 0u) << "the program says so again";
  two.vote(1, 2);
  EXPECT_FALSE(try_commit(two.p.page, 2, 1, 5));
}

// A process that was late has voted and moved one word behind the look at the votes, and before its right was taken.
TEST(Commit, TogetherTheNextGenerationFollowsWhatALateProcessHasMoved) {
  for (const int moved : {0, 2}) {
    TwoTogether two;
    RegionWords& words = two.p.page.regions[moved];
    words.commit.store(words.target.load());
    next_generation(two.p.page, 1);
    EXPECT_EQ(two.steps(), (Steps{5, 5}));
    EXPECT_EQ(two.p.page.regions[2].commit.load(), (Commit{5, 2}.pack(2)));
  }
}

TEST(Region, IsItsModelsOrTheFirstFreeOne) {
  Page p;
  EXPECT_EQ(region_of(p.page, 7), 0);
  p.page.regions[0].model.store(7);
  EXPECT_EQ(region_of(p.page, 7), 0);
  EXPECT_EQ(region_of(p.page, 8), 1);
  for (int region = 1; region < kRegions; ++region) p.page.regions[region].model.store(10 + std::uint64_t(region));
  EXPECT_EQ(region_of(p.page, 8), std::nullopt);
  EXPECT_EQ(region_of(p.page, 13), 3);
}

TEST(Generation, TheNextOneStartsClean) {
  Page p;
  raise_abort(p.page, 1, {.rank = 0, .cause = "old"});
  next_generation(p.page, 3);
  EXPECT_FALSE(is_aborted(p.page, 2));
  EXPECT_TRUE(raise_abort(p.page, 2, {.rank = 1, .cause = "new"}));
  EXPECT_EQ(read_failure(p.page, 2).cause, "new");
}

TEST(Generation, CommitsFirstWhatAllHadVotedFor) {
  Page p(1);
  RegionWords& region = p.page.regions[0];
  region.target.store(Commit{1, 1}.pack(1));
  p.page.ranks[0].votes[0].store(make_mark(1, 1));
  next_generation(p.page, 1);
  EXPECT_EQ(committed_word(region), (Commit{1, 1}));
}

TEST(Generation, TheLastOneIsAbortedAndCannotAbortThisOne) {
  Page p;
  next_generation(p.page, 3);
  EXPECT_TRUE(is_aborted(p.page, 1));
  EXPECT_FALSE(raise_abort(p.page, 1, {.rank = 0, .cause = "late"}));
  EXPECT_FALSE(is_aborted(p.page, 2));
  EXPECT_NE(read_failure(p.page, 1).cause.find("attempt that is over"), std::string::npos);
  EXPECT_TRUE(raise_abort(p.page, 2, {.rank = 1, .cause = "mine"}));
  EXPECT_FALSE(raise_abort(p.page, 1, {.rank = 0, .cause = "later still"}));
  EXPECT_TRUE(is_aborted(p.page, 2));
  EXPECT_EQ(read_failure(p.page, 2).cause, "mine");
}

TEST(Generation, TheLastOneCommitsNothingWhoeverHasVoted) {
  Page p(2);
  ControlPage& page = p.page;
  for (int number = 0; number < kRegions; ++number) {
    page.regions[number].target.store(Commit{1, 1}.pack(1));
    page.ranks[0].votes[number].store(make_mark(1, 1));
  }
  next_generation(page, 2);
  for (int number = 0; number < kRegions; ++number) {
    RegionWords& region = page.regions[number];
    page.ranks[1].votes[number].store(make_mark(1, 1));  // a process that was late
    EXPECT_FALSE(try_commit(page, number, 1, 1));
    EXPECT_EQ(committed_word(region), Commit{});
    EXPECT_FALSE(replace(region.target, Commit{1, 1}.pack(1))) << "it chooses for the next one";
    // Nor by the votes and the target of this one.
    for (RankWords& rank : page.ranks) rank.votes[number].store(make_mark(2, 1));
    EXPECT_TRUE(replace(region.target, Commit{1, 2}.pack(2)));
    EXPECT_FALSE(try_commit(page, number, 1, 1));
    EXPECT_EQ(committed_word(region), Commit{});
    EXPECT_TRUE(try_commit(page, number, 2, 1));
    EXPECT_EQ(committed_word(region), (Commit{1, 2}));
    EXPECT_FALSE(try_commit(page, number, 1, 1)) << "the step is another generation's";
  }
}

TEST(Generation, WordsAreMovedForwardOnly) {
  std::atomic<Mark> word{make_mark(2, 5)};
  EXPECT_FALSE(advance(word, make_mark(1, 9)));
  EXPECT_FALSE(advance(word, make_mark(2, 5)));
  EXPECT_EQ(word.load(), make_mark(2, 5));
  EXPECT_TRUE(advance(word, make_mark(2, 6)));
  EXPECT_TRUE(advance(word, make_mark(3, 0)));
  EXPECT_FALSE(has_reached(word.load(), make_mark(2, 6))) << "a later generation is not an arrival in this one";
}

TEST(Generation, WordsAreReplacedByItsOwnMembersAndLaterOnes) {
  std::atomic<Mark> word{make_mark(2, 5)};
  EXPECT_FALSE(replace(word, make_mark(1, 9)));
  EXPECT_EQ(word.load(), make_mark(2, 5));
  EXPECT_TRUE(replace(word, make_mark(2, 4)));
  EXPECT_EQ(word.load(), make_mark(2, 4));
  EXPECT_TRUE(replace(word, make_mark(3, 0)));
  EXPECT_EQ(word.load(), make_mark(3, 0));
}

TEST(Generation, RanksThatAreGoneOrNewDoNotMatter) {
  Page p(3);
  ControlPage& page = p.page;
  RegionWords& region = page.regions[0];
  const auto vote = [&](std::initializer_list<int> ranks, Mark mark) {
    for (const int rank : ranks) p.page.ranks[rank].votes[0].store(mark);
  };
  region.target.store(Commit{7, 1}.pack(1));
  vote({0, 1, 2}, make_mark(1, 7));
  next_generation(page, 2);  // commits step 7
  EXPECT_EQ(committed_word(region).step, 7u);
  region.target.store(Commit{8, 0}.pack(2));
  vote({0, 1}, make_mark(2, 8));
  EXPECT_TRUE(try_commit(page, 0, 2, 8)) << "waits for a rank that is gone";
  next_generation(page, 4);
  region.target.store(Commit{9, 1}.pack(3));
  vote({0, 1, 2}, make_mark(3, 9));
  EXPECT_FALSE(try_commit(page, 0, 3, 9)) << "takes a new rank's empty word for a vote";
  vote({3}, make_mark(3, 9));
  EXPECT_TRUE(try_commit(page, 0, 3, 9));
  EXPECT_THROW(next_generation(page, 0), UsageError);
  EXPECT_THROW(next_generation(page, kMaxLocalRanks + 1), UsageError);
}

TEST(Extent, IsOneWord) {
  const Extent extent{.offset = 6 * Extent::kUnit, .bytes = (std::size_t(1) << 40) + Extent::kUnit};
  EXPECT_EQ(Extent::unpack(extent.pack()), extent);
  EXPECT_EQ(Extent::unpack(0).bytes, 0u);
}

}  // namespace
}  // namespace lockstep::base
