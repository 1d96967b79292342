#pragma once

// The control page: the first bytes of a node's segment, by which its ranks and its
// agent agree on where the job stands. Torch-free, a plain struct of lock-free words.
//
// There are no locks and no counters: a process that dies at any instruction leaves
// every word whole. Each word has one writer (its rank), but for `abort`, `commit`,
// `error` and `segment`, whose writers compare-and-swap. Marks carry the generation,
// so that a word left by an older membership reads as "not yet".
//
// Who waits for what is in member.h; the life of a step in docs/design/step.md.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/limits.h"

namespace lockstep::base {

inline constexpr std::uint64_t kControlMagic = 0x70657473'6b636f6cULL;  // "lockstep"
inline constexpr std::uint32_t kControlVersion = 3;

/// Where a rank is in its step. Written by the rank, read by peers for their messages.
enum class Phase : std::uint32_t {
  outside,     ///< not in a step: start-up, data, evaluation
  forward,     ///< forward and backward; gradients go into the slots
  gather,      ///< waits until every rank's slots are written
  update,      ///< reduces and updates its slice
  vote,        ///< has voted or is about to; waits for the commit
  flip,        ///< moves its tensors to the committed buffer
  collective,  ///< inside a Group call
};
inline constexpr int kPhases = 7;
std::string_view to_string(Phase phase);

/// Whether a rank takes part: compared with the generation it joined in.
enum class Seat : std::uint32_t { empty, joined, left };

/// A mark: (generation, count). Marks of an older generation are smaller than any of a
/// newer one, so `mark >= make_mark(generation, n)` reads right across restarts.
using Mark = std::uint64_t;
constexpr Mark make_mark(std::uint32_t generation, std::uint64_t count) {
  return (Mark(generation) << 44) | (count & ((Mark(1) << 44) - 1));
}
constexpr std::uint64_t mark_count(Mark mark) { return mark & ((Mark(1) << 44) - 1); }
constexpr std::uint32_t mark_generation(Mark mark) { return std::uint32_t(mark >> 44); }

/// A commit word: the last committed step and the buffer that holds it.
struct Commit {
  std::uint64_t step = 0;
  std::uint32_t buffer = 0;
  constexpr std::uint64_t pack() const { return (step << 8) | buffer; }
  static constexpr Commit unpack(std::uint64_t word) { return {word >> 8, std::uint32_t(word & 0xff)}; }
  bool operator==(const Commit&) const = default;
};

/// One rank's words, on cache lines of their own: what is polled, what only messages need, and what
/// hardly ever changes are kept apart, so that a look at one does not wait for a store to another.
/// 128 bytes, for some processors fetch lines in pairs.
struct alignas(128) RankWords {
  std::atomic<Mark> arrived;                     ///< barriers it has arrived at
  alignas(128) std::atomic<Mark> vote;           ///< the step it votes to commit
  std::atomic<std::uint64_t> step;               ///< the step it is in
  std::atomic<std::uint32_t> phase;              ///< Phase
  alignas(128) std::atomic<std::uint32_t> seat;  ///< Seat
  std::atomic<std::uint32_t> claim;              ///< the last generation in which somebody took the seat
  std::atomic<std::uint32_t> generation;         ///< the generation it joined
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint32_t> futex;   ///< what it sleeps on
  std::atomic<std::uint32_t> asleep;  ///< 1 while it may be asleep
};

/// The first failure of a generation. Whoever moves `claim` from 0 fills the rest and
/// then sets `written`; nobody else may write.
struct ErrorSlot {
  std::atomic<std::uint32_t> claim;
  std::atomic<std::uint32_t> written;
  std::int32_t rank;
  std::int32_t exit_code;
  std::uint64_t step;
  char phase[32];
  char cause[1600];
};

struct ControlPage {
  std::uint64_t magic;
  std::uint32_t version;
  std::int32_t local_world;                       ///< ranks on this node
  std::atomic<std::uint32_t> generation;          ///< starts at 1
  std::atomic<std::uint32_t> abort;               ///< 0, or the generation that has failed
  alignas(64) std::atomic<std::uint64_t> commit;  ///< Commit::pack()
  alignas(64) std::atomic<std::uint64_t> bytes;   ///< size of the segment so far, see Segment::grow
  std::atomic<std::uint64_t> state_offset;        ///< where the state region begins; 0: none yet
  std::atomic<std::uint32_t> state_generation;    ///< the generation whose ranks made or took over the state
  std::atomic<std::uint32_t> state_buffers;       ///< how many buffers a step may write in turn
  std::atomic<std::uint64_t> state_fingerprint;   ///< of the layout the state region was made for
  std::atomic<std::uint64_t> data_fingerprint;    ///< of the data set it is trained on; 0: not told (train/same_data.h)
  ErrorSlot error;
  RankWords ranks[kMaxLocalRanks];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

/// What the control page takes at the start of the segment (whole pages).
inline constexpr std::size_t kControlBytes = (sizeof(ControlPage) + 4095) / 4096 * 4096;

/// Makes a control page for `local_world` ranks in zeroed memory of kControlBytes.
ControlPage* format_control_page(void* memory, int local_world);

/// Checks magic, version and world of an existing page; throws Error when they differ.
ControlPage* check_control_page(void* memory, int local_world);

/// Starts the next generation: clears the error slot and the abort word. Call it only
/// when no process of an older generation lives.
void next_generation(ControlPage& page);

/// Writes the failure into the error slot unless another was first, raises the abort word
/// and wakes every sleeper. Returns true when this one was first. Safe from any thread or
/// process, the agent included.
bool raise_abort(ControlPage& page, const Failure& failure);

/// The buffer that a step writes when `committed` is the current one.
constexpr int next_buffer(int committed, int state_buffers) { return (committed + 1) % state_buffers; }

/// Moves the commit word to (step, next buffer) when all ranks have voted for `step`. Returns
/// whether `step` is committed now. Safe to call by anybody, any number of times.
bool try_commit(ControlPage& page, std::uint64_t step);

/// What the agent does when all workers have ended: commits the step that all had voted for, if
/// they died before one of them could.
void roll_forward(ControlPage& page);

/// The failure in the error slot. Waits a moment for a writer that is not done; a writer
/// that died halfway reads as an unnamed failure.
Failure read_failure(const ControlPage& page);

inline bool is_aborted(const ControlPage& page) {
  return page.abort.load(std::memory_order_acquire) == page.generation.load(std::memory_order_relaxed);
}

/// Wakes every rank that sleeps on its word.
void wake_all(ControlPage& page);

}  // namespace lockstep::base
