#include "lockstep/trace/flight_recorder.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>

namespace lockstep::trace {
namespace {

constexpr std::size_t kEndWord = offsetof(KeptCall, end) / 8;
static_assert(offsetof(KeptCall, end) % 8 == 0);

}  // namespace

std::int64_t steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

FlightRecorder::FlightRecorder(std::size_t capacity)
    : capacity_(std::max<std::size_t>(capacity, 1)), slots_(std::make_unique<Slot[]>(capacity_)) {}

// Two writers meet at a slot only where one is a whole ring behind.
std::uint64_t FlightRecorder::lock(Slot& slot) {
  for (;;) {
    std::uint64_t turn = slot.turn.load(std::memory_order_relaxed) & ~std::uint64_t(1);
    if (slot.turn.compare_exchange_weak(turn, turn + 1, std::memory_order_acquire)) return turn;
  }
}

// Words are stored with release and read with acquire: so a reader that has seen a new word sees an odd turn, or a
// later one. On x86 these are plain moves.
std::uint64_t FlightRecorder::begin(const Call& call) {
  const std::uint64_t ticket = next_.fetch_add(1, std::memory_order_relaxed) + 1;
  const KeptCall kept{.call = call, .begin = steady_now(), .end = 0};
  std::array<std::uint64_t, Slot::kWords> words{};
  std::memcpy(words.data(), &kept, sizeof kept);
  Slot& slot = slot_of(ticket);
  const std::uint64_t turn = lock(slot);
  if (slot.ticket.load(std::memory_order_relaxed) < ticket) {
    slot.ticket.store(ticket, std::memory_order_release);
    for (std::size_t i = 0; i < words.size(); ++i) slot.words[i].store(words[i], std::memory_order_release);
  }
  unlock(slot, turn);
  return ticket;
}

void FlightRecorder::end(std::uint64_t ticket) {
  const std::int64_t now = steady_now();
  Slot& slot = slot_of(ticket);
  const std::uint64_t turn = lock(slot);
  if (slot.ticket.load(std::memory_order_relaxed) == ticket)
    slot.words[kEndWord].store(std::uint64_t(now), std::memory_order_release);
  unlock(slot, turn);
}

void FlightRecorder::forget(std::uint64_t ticket) {
  Slot& slot = slot_of(ticket);
  const std::uint64_t turn = lock(slot);
  if (slot.ticket.load(std::memory_order_relaxed) == ticket) slot.ticket.store(0, std::memory_order_release);
  unlock(slot, turn);
}

std::optional<KeptCall> FlightRecorder::read(const Slot& slot, std::uint64_t& ticket) const {
  std::array<std::uint64_t, Slot::kWords> words{};
  const std::uint64_t turn = slot.turn.load(std::memory_order_acquire);
  ticket = slot.ticket.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = slot.words[i].load(std::memory_order_acquire);
  if (turn % 2 != 0 || slot.turn.load(std::memory_order_relaxed) != turn || ticket == 0) return {};
  KeptCall kept;
  std::memcpy(static_cast<void*>(&kept), words.data(), sizeof kept);
  return kept;
}

std::vector<KeptCall> FlightRecorder::calls() const {
  std::vector<std::pair<std::uint64_t, KeptCall>> found;
  for (std::size_t i = 0; i < capacity_; ++i) {
    std::uint64_t ticket = 0;
    if (const std::optional<KeptCall> kept = read(slots_[i], ticket)) found.emplace_back(ticket, *kept);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<KeptCall> calls;
  for (const auto& [ticket, kept] : found) calls.push_back(kept);
  return calls;
}

}  // namespace lockstep::trace
