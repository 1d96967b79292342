#include "lockstep/base/control_page.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include "lockstep/base/futex.h"

namespace lockstep::base {
namespace {

void copy_text(char* to, std::size_t capacity, const std::string& from) {
  const std::size_t n = std::min(capacity - 1, from.size());
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

}  // namespace

std::string_view to_string(Phase phase) {
  constexpr std::string_view names[kPhases] = {"outside a step", "forward", "gather",    "update",
                                               "vote",           "flip",    "collective"};
  const auto index = static_cast<std::size_t>(phase);
  return index < kPhases ? names[index] : "unknown phase";
}

ControlPage* format_control_page(void* memory, int local_world) {
  if (local_world < 1 || local_world > kMaxLocalRanks)
    throw UsageError("a node holds 1 to " + std::to_string(kMaxLocalRanks) + " ranks, not " +
                     std::to_string(local_world));
  auto* page = static_cast<ControlPage*>(memory);
  page->version = kControlVersion;
  page->local_world = local_world;
  page->generation.store(1, std::memory_order_relaxed);
  page->bytes.store(kControlBytes, std::memory_order_relaxed);
  page->magic = kControlMagic;
  return page;
}

ControlPage* check_control_page(void* memory, int local_world) {
  auto* page = static_cast<ControlPage*>(memory);
  if (page->magic != kControlMagic) throw Error("segment: no control page (wrong magic)");
  if (page->version != kControlVersion)
    throw Error("segment: made by another version of lockstep (control page version " + std::to_string(page->version) +
                ", this program has " + std::to_string(kControlVersion) + ")");
  if (page->local_world != local_world)
    throw Error("segment: made for " + std::to_string(page->local_world) + " ranks, this job has " +
                std::to_string(local_world));
  return page;
}

void next_generation(ControlPage& page) {
  page.error.written.store(0, std::memory_order_relaxed);
  page.error.claim.store(0, std::memory_order_relaxed);
  page.generation.fetch_add(1, std::memory_order_release);
}

bool raise_abort(ControlPage& page, const Failure& failure) {
  std::uint32_t unclaimed = 0;
  const bool first = page.error.claim.compare_exchange_strong(unclaimed, 1);
  if (first) {
    page.error.rank = failure.rank;
    page.error.exit_code = failure.exit_code;
    page.error.step = failure.step;
    copy_text(page.error.phase, sizeof page.error.phase, failure.phase);
    copy_text(page.error.cause, sizeof page.error.cause, failure.cause);
    page.error.written.store(1, std::memory_order_release);
  }
  page.abort.store(page.generation.load(std::memory_order_relaxed), std::memory_order_seq_cst);
  wake_all(page);
  return first;
}

bool try_commit(ControlPage& page, std::uint64_t step) {
  std::uint64_t word = page.commit.load(std::memory_order_seq_cst);
  const Commit current = Commit::unpack(word);
  if (current.step >= step) return true;
  const Mark wanted = make_mark(page.generation.load(std::memory_order_relaxed), step);
  for (int rank = 0; rank < page.local_world; ++rank)
    if (page.ranks[rank].vote.load(std::memory_order_seq_cst) != wanted) return false;
  const auto buffers = int(page.state_buffers.load(std::memory_order_relaxed));
  const Commit next{.step = step, .buffer = std::uint32_t(next_buffer(int(current.buffer), buffers))};
  page.commit.compare_exchange_strong(word, next.pack(), std::memory_order_seq_cst);
  return true;  // by this call or, when the exchange failed, by another's
}

void roll_forward(ControlPage& page) {
  const Mark vote = page.ranks[0].vote.load(std::memory_order_seq_cst);
  const bool current = mark_generation(vote) == page.generation.load(std::memory_order_relaxed);
  if (current && page.state_buffers.load(std::memory_order_relaxed) > 0) try_commit(page, mark_count(vote));
}

Failure read_failure(const ControlPage& page) {
  using namespace std::chrono_literals;
  // A writer that was preempted in the middle needs a moment; one that died there never comes.
  for (int i = 0; i < 500 && page.error.written.load(std::memory_order_acquire) == 0; ++i)
    std::this_thread::sleep_for(1ms);
  if (page.error.written.load(std::memory_order_acquire) == 0)
    return {.cause = "a rank failed and died before it could say why"};
  return {.rank = page.error.rank,
          .step = page.error.step,
          .phase = page.error.phase,
          .cause = page.error.cause,
          .exit_code = page.error.exit_code};
}

void wake_all(ControlPage& page) {
  for (int rank = 0; rank < page.local_world; ++rank) {
    RankWords& words = page.ranks[rank];
    if (words.asleep.load(std::memory_order_seq_cst) != 0) {
      words.futex.fetch_add(1, std::memory_order_seq_cst);
      futex_wake(words.futex);
    }
  }
}

}  // namespace lockstep::base
