#pragma once

// The control page: the first bytes of a node's segment, by which its ranks and its
// agent agree on where the job stands. Torch-free, a plain struct of lock-free words.
//
// There are no locks and no counters: a process that dies at any instruction leaves
// every word whole. Words that decide something carry the generation they were written in,
// and are moved by compare-and-swap only: what an older membership has left reads as
// "not yet", and what it writes late is refused. Whoever asks says in which generation it is.
//
// Who waits for what is in member.h; the life of a step in docs/design/step.md.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/limits.h"

namespace lockstep::base {

inline constexpr std::uint64_t kControlMagic = 0x70657473'6b636f6cULL;  // "lockstep"
inline constexpr std::uint32_t kControlVersion = 12;

/// Where a rank is in its step. Written by the rank, read by peers for their messages.
enum class Phase : std::uint32_t {
  outside,     ///< not in a step: start-up, data, evaluation
  forward,     ///< forward and backward; gradients go into the slots
  pinned,      ///< local rank 0 waits for a state buffer that nobody has pinned
  gather,      ///< waits until every rank's slots are written
  update,      ///< reduces and updates its slice
  vote,        ///< has voted or is about to; waits for the commit
  flip,        ///< moves its tensors to the committed buffer
  collective,  ///< inside a Group call
};
inline constexpr int kPhases = 8;
std::string_view to_string(Phase phase);

/// A mark: (generation, count). Marks of an older generation are smaller than any of a
/// newer one, so `mark >= make_mark(generation, n)` reads right across restarts.
using Mark = std::uint64_t;
constexpr Mark make_mark(std::uint32_t generation, std::uint64_t count) {
  return (Mark(generation) << 44) | (count & ((Mark(1) << 44) - 1));
}
constexpr std::uint64_t mark_count(Mark mark) { return mark & ((Mark(1) << 44) - 1); }
constexpr std::uint32_t mark_generation(Mark mark) { return std::uint32_t(mark >> 44); }

/// Whether whoever writes `word` has come as far as `mark`, in the same generation.
constexpr bool has_reached(Mark word, Mark mark) {
  return mark_generation(word) == mark_generation(mark) && word >= mark;
}

/// Moves the word to `mark` unless it is there or further; returns whether it was this call. So a process
/// of an older generation changes nothing.
bool advance(std::atomic<Mark>& word, Mark mark);

/// Sets the word to `mark`, forward or back, unless a later generation has written it; returns whether it did.
bool replace(std::atomic<Mark>& word, Mark mark);

/// What a rank's seat word counts.
enum class Seat : std::uint32_t {
  empty,
  taken,   ///< by a process that is writing its words
  joined,  ///< they are whole
  left,
};
constexpr Mark make_mark(std::uint32_t generation, Seat seat) { return make_mark(generation, std::uint64_t(seat)); }

/// A step and the buffer that holds it. As a word, a mark: it names the generation that may
/// move it, so that the next one, by writing its own number there, takes that right away.
struct Commit {
  std::uint64_t step = 0;
  std::uint32_t buffer = 0;
  /// The last that a word has room for: no job comes so far.
  static constexpr std::uint64_t kNoStep = (std::uint64_t(1) << 42) - 1;
  constexpr Mark pack(std::uint32_t generation) const { return make_mark(generation, (step << 2) | buffer); }
  static constexpr Commit unpack(Mark word) { return {mark_count(word) >> 2, std::uint32_t(word & 3)}; }
  bool operator==(const Commit&) const = default;
};
inline constexpr int kMaxStateBuffers = 4;

/// Shared states that a segment has room for: a program may train two models.
inline constexpr int kRegions = 4;

/// What grows on its own in a segment. `state` is region 0; the others come behind it.
enum class Area : std::uint32_t { staging, tensors, text, state };
inline constexpr int kAreas = int(Area::state) + kRegions;
constexpr Area state_area(int region) { return Area(std::uint32_t(Area::state) + std::uint32_t(region)); }

/// Where an area lies: whole units of 2 MiB, one word, so that it is there or not.
struct Extent {
  static constexpr std::size_t kUnit = std::size_t(2) << 20;
  std::size_t offset = 0;
  std::size_t bytes = 0;  ///< 0: the area has not been made
  constexpr std::size_t end() const { return offset + bytes; }
  constexpr std::uint64_t pack() const { return std::uint64_t(offset / kUnit) << 32 | bytes / kUnit; }
  static constexpr Extent unpack(std::uint64_t word) { return {(word >> 32) * kUnit, (word & 0xffffffff) * kUnit}; }
  bool operator==(const Extent&) const = default;
};

/// One rank's words, on cache lines of their own: what is polled, what only messages need, and what
/// hardly ever changes are kept apart, so that a look at one does not wait for a store to another.
/// 128 bytes, for some processors fetch lines in pairs.
struct alignas(128) RankWords {
  std::atomic<Mark> arrived;                       ///< barriers it has arrived at
  alignas(128) std::atomic<Mark> votes[kRegions];  ///< of each region, the step that it votes to commit
  std::atomic<std::uint64_t> step;                 ///< the step it is in
  std::atomic<std::uint32_t> phase;                ///< Phase
  std::atomic<std::uint32_t> away;                 ///< not 0: it may be waiting for ranks of other nodes
  std::atomic<std::uint32_t> looks;                ///< rises while it waits, for whomever: it is alive
  alignas(128) std::atomic<Mark> seat;             ///< (the last generation in which somebody took it, Seat)
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint32_t> futex;    ///< what it sleeps on
  std::atomic<std::uint32_t> asleep;   ///< 1 while it may be asleep
  std::atomic<std::uint32_t> answers;  ///< 1: its process writes its stack when asked (stack_on_request.h)
};

/// What decides about one shared state (state/shared_state.h), whose memory is the area state_area(its number), beside
/// the ranks' votes for it.
struct RegionWords {
  alignas(128) std::atomic<Mark> commit;   ///< Commit::pack(): the last committed step; committed() reads it
  std::atomic<Mark> target;                ///< Commit::pack(): the step being made and the buffer that it writes
  std::atomic<std::uint32_t> generation;   ///< whose ranks made the state or took it over
  std::atomic<std::uint32_t> buffers;      ///< how many buffers steps write
  std::atomic<std::uint64_t> fingerprint;  ///< of the layout the state was made for; 0: never filled
  std::atomic<std::uint64_t> model;        ///< whose state it is: a hash of the model's name; 0: nobody's
  std::atomic<std::uint32_t> together;     ///< bits of the regions whose steps are committed with its own, in this
                                           ///< generation; 0: its own alone
  std::atomic<std::uint32_t> spread;       ///< 1: sums of other nodes have lain where slots of this one may come to lie
  std::atomic<std::uint64_t> attempts;     ///< of the job that have gone on from it, as far as this node was there
  std::atomic<std::uint64_t> set;          ///< a number that shares of one state have in common; 0: it is all here
  std::atomic<std::int32_t> shares;        ///< that the nodes have of the optimizer's state
  std::atomic<std::int32_t> share;         ///< of these, the one that is here
  std::atomic<std::int32_t> copied;        ///< 1: and a copy of the one before it
};

/// The first failure of a generation: its slot is free, then claimed by one, who fills the rest and says
/// written; nobody else may write.
struct ErrorSlot {
  enum class State : std::uint64_t { free, claimed, written };
  std::atomic<Mark> state;  ///< (generation, State)
  std::int32_t rank;
  std::int32_t exit_code;
  std::uint64_t step;
  char phase[32];
  char cause[1600];
};

struct ControlPage {
  std::uint64_t magic;
  std::uint32_t version;
  std::atomic<std::int32_t> local_world;                 ///< ranks of this generation on this node
  std::atomic<std::uint32_t> generation;                 ///< starts at 1
  std::atomic<std::uint32_t> abort;                      ///< the last generation that has failed
  std::atomic<std::uint32_t> room;                       ///< the last one that is asked to make room (room.h)
  alignas(64) std::atomic<std::uint64_t> areas[kAreas];  ///< Extent::pack(), see Segment::grow
  std::atomic<std::uint64_t> rooms[kAreas];              ///< bytes that each may grow to where it lies
  std::atomic<std::uint64_t> data_fingerprint;  ///< of the data set it is trained on; 0: not told (train/same_data.h)
  std::atomic<std::uint64_t> text;              ///< where Area::text has one, see published_text.h; 0: none
  ErrorSlot error;
  RegionWords regions[kRegions];
  RankWords ranks[kMaxLocalRanks];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

/// What the control page takes at the start of the segment (whole pages).
inline constexpr std::size_t kControlBytes = (sizeof(ControlPage) + 4095) / 4096 * 4096;

/// Makes a control page for `local_world` ranks in zeroed memory of kControlBytes.
ControlPage* format_control_page(void* memory, int local_world);

/// Checks magic, version and world of an existing page; throws Error when they differ.
ControlPage* check_control_page(void* memory, int local_world);

/// Starts the next generation, of `local_world` ranks: commits what the last one had voted for, then takes from
/// it the right to commit, and everything else by which its processes could still be heard: for them the group
/// is aborted. One that is in the middle of writing a buffer goes on writing it, which is what
/// next_generation(Segment, ...) is for.
void next_generation(ControlPage& page, int local_world);

/// Writes the failure of a generation into the error slot unless another was first, raises the abort word
/// and wakes every sleeper. Returns true when this one was first. Safe from any thread or
/// process, the agent included; without effect on a later generation.
bool raise_abort(ControlPage& page, std::uint32_t generation, const Failure& failure);

/// The words of a region. UsageError when the page has no such region.
RegionWords& region_words(ControlPage& page, int region);

/// The region that has `model`'s state, else the first that is nobody's; nothing where there is none left.
std::optional<int> region_of(const ControlPage& page, std::uint64_t model);

/// The committed step of a region; nothing where no state was ever filled in, whatever a maker that died has left.
std::optional<Commit> committed(const RegionWords& region);

/// The target word, if it is that of `step` in `generation`.
std::optional<Mark> target_of(const RegionWords& region, std::uint32_t generation, std::uint64_t step);

/// Whether all ranks of the generation have voted for `step` in the region, and for no later one.
bool have_all_voted(const ControlPage& page, int region, std::uint32_t generation, std::uint64_t step);

/// Moves the region's commit word to its target when all ranks of the generation have voted for `step`, whose target
/// that is. Of regions that commit together, each has votes of its own, and when all are in, all words are moved: votes
/// stay, so whoever dies in the middle leaves the rest to roll_forward(). Returns whether `step` is committed now, in
/// each of them, and `generation` still the page's. Safe to call by anybody, any number of times.
bool try_commit(ControlPage& page, int region, std::uint32_t generation, std::uint64_t step);

/// Commits in each region the step that all ranks had voted for, if they died before one of them could.
void roll_forward(ControlPage& page);

/// Why `generation` is aborted: the failure in the error slot. Waits a moment for a writer that is not done; a
/// writer that died halfway reads as an unnamed failure.
Failure read_failure(const ControlPage& page, std::uint32_t generation);

/// Whether a generation has failed or is over.
inline bool is_aborted(const ControlPage& page, std::uint32_t generation) {
  return page.abort.load(std::memory_order_acquire) >= generation ||
         page.generation.load(std::memory_order_acquire) != generation;
}

/// Whether the rank has joined this generation, whatever became of it.
inline bool has_joined(const RankWords& words, std::uint32_t generation) {
  return has_reached(words.seat.load(std::memory_order_seq_cst), make_mark(generation, Seat::joined));
}

/// Wakes every rank that sleeps on its word.
void wake_all(ControlPage& page);

}  // namespace lockstep::base
