#pragma once

// The last collectives of a rank, kept in memory for the day on which one does not end. Torch-free.
//
// To keep one costs no memory and no lock: a place of a ring is claimed by a counter, and written word by word. Whoever
// reads meanwhile leaves out what is being written. All of it may be called by any thread.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

namespace lockstep::trace {

/// What a rank calls. The texts are constants of the program, which outlive it.
struct Call {
  static constexpr std::size_t kSizes = 8;
  const char* kind = "";           ///< "all_reduce"
  const char* dtype = "";          ///< "Float"; empty: there is no tensor
  const char* detail_name = "";    ///< "op", "root", "tag"; empty: there is none
  const char* detail_text = "";    ///< "sum"; empty: detail is a number
  const char* label = "";          ///< what it is for, "bucket"; empty: nothing is known
  const char* phase = "";          ///< where the rank is in its step
  std::int64_t label_number = -1;  ///< -1: the label has none
  std::int64_t detail = 0;
  std::int64_t elements = 0;
  std::uint64_t step = 0;
  std::uint64_t number = 0;      ///< counted from 1, in its group; of messages, with its peer and in its direction
  std::uint32_t group = 0;       ///< FlightRecorder's number of it
  std::int32_t peer = -1;        ///< of a message: the other rank's number in the world; -1: a collective
  std::uint32_t dimensions = 0;  ///< of the tensor; sizes beyond the eighth are not kept
  std::array<std::int64_t, kSizes> sizes = {};
};

/// A call with its times, nanoseconds of the steady clock; end 0: it has not ended.
struct KeptCall {
  Call call;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Now, by the clock of these times.
std::int64_t steady_now();

class FlightRecorder {
 public:
  /// Keeps the last `capacity` calls, at least one.
  explicit FlightRecorder(std::size_t capacity);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// The call begins now. Returns what names it to the others.
  std::uint64_t begin(const Call& call);
  /// It has ended now; nothing where later calls have taken its place.
  void end(std::uint64_t ticket);
  /// It was refused before the other ranks could hear of it: nothing is kept.
  void forget(std::uint64_t ticket);

  /// How many calls have begun.
  std::uint64_t begun() const { return next_.load(std::memory_order_relaxed); }
  /// What is kept, in the order of beginning.
  std::vector<KeptCall> calls() const;

 private:
  /// As words, because a reader may see them half written, which only atomic words allow.
  struct Slot {
    static constexpr std::size_t kWords = (sizeof(KeptCall) + 7) / 8;
    std::atomic<std::uint64_t> turn{0};    ///< odd while it is written
    std::atomic<std::uint64_t> ticket{0};  ///< 1 and above; 0: empty
    std::array<std::atomic<std::uint64_t>, kWords> words{};
  };
  static_assert(std::is_trivially_copyable_v<KeptCall>);

  static std::uint64_t lock(Slot& slot);
  static void unlock(Slot& slot, std::uint64_t turn) { slot.turn.store(turn + 2, std::memory_order_release); }
  std::optional<KeptCall> read(const Slot& slot, std::uint64_t& ticket) const;
  Slot& slot_of(std::uint64_t ticket) const { return slots_[(ticket - 1) % capacity_]; }

  const std::size_t capacity_;
  const std::unique_ptr<Slot[]> slots_;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace lockstep::trace
