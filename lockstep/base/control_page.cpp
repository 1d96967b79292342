#include "lockstep/base/control_page.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include "lockstep/base/futex.h"
#include "lockstep/base/message.h"

namespace lockstep::base {
namespace {

// A call stack would fill the slot.
void copy_text(char* to, std::size_t capacity, std::string_view what) {
  const std::string_view from = without_call_stack(what);
  const std::size_t n = std::min(capacity - 1, from.size());
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

constexpr Mark slot_mark(std::uint32_t generation, ErrorSlot::State state) {
  return make_mark(generation, std::uint64_t(state));
}

bool is_committed(const RegionWords& words, std::uint32_t generation, std::uint64_t step) {
  const Mark word = words.commit.load(std::memory_order_seq_cst);
  return mark_generation(word) == generation && Commit::unpack(word).step >= step;
}

// For a step that all have voted for. False when the next generation has begun.
bool move_to_target(RegionWords& words, std::uint32_t generation, std::uint64_t step) {
  Mark word = words.commit.load(std::memory_order_seq_cst);
  if (mark_generation(word) != generation) return false;
  if (Commit::unpack(word).step >= step) return true;
  const std::optional<Mark> target = target_of(words, generation, step);
  if (!target) return is_committed(words, generation, step);  // others may have committed it meanwhile, and gone on
  // By this call; or, when the exchange fails, by another's, unless the next generation has begun.
  return words.commit.compare_exchange_strong(word, *target, std::memory_order_seq_cst) ||
         mark_generation(word) == generation;
}

// Of regions that commit together, a process of the last generation may have moved one, and found the next one's right
// taken: all votes for it were in.
void follow_others(ControlPage& page, int region, std::uint32_t next) {
  RegionWords& words = page.regions[region];
  for (int other = 0; other < kRegions; ++other) {
    if ((words.together.load(std::memory_order_seq_cst) >> other & 1) == 0) continue;
    const std::uint64_t step = Commit::unpack(page.regions[other].commit.load(std::memory_order_seq_cst)).step;
    if (step <= Commit::unpack(words.commit.load(std::memory_order_seq_cst)).step) continue;
    if (const std::optional<Mark> target = target_of(words, next - 1, step))
      words.commit.store(Commit::unpack(*target).pack(next), std::memory_order_seq_cst);
  }
}

void check_local_world(int local_world) {
  if (local_world < 1 || local_world > kMaxLocalRanks)
    throw UsageError("a node holds 1 to " + std::to_string(kMaxLocalRanks) + " ranks, not " +
                     std::to_string(local_world));
}

}  // namespace

bool advance(std::atomic<Mark>& word, Mark mark) {
  Mark seen = word.load(std::memory_order_relaxed);
  while (seen < mark)
    if (word.compare_exchange_weak(seen, mark, std::memory_order_seq_cst)) return true;
  return false;
}

bool replace(std::atomic<Mark>& word, Mark mark) {
  Mark seen = word.load(std::memory_order_relaxed);
  while (mark_generation(seen) <= mark_generation(mark))
    if (word.compare_exchange_weak(seen, mark, std::memory_order_seq_cst)) return true;
  return false;
}

std::string_view to_string(Phase phase) {
  constexpr std::string_view names[kPhases] = {
      "outside a step", "forward",   "waiting for a state buffer that nobody has pinned", "gather", "update", "vote",
      "flip",           "collective"};
  const auto index = static_cast<std::size_t>(phase);
  return index < kPhases ? names[index] : "unknown phase";
}

ControlPage* format_control_page(void* memory, int local_world) {
  check_local_world(local_world);
  auto* page = static_cast<ControlPage*>(memory);
  page->version = kControlVersion;
  page->local_world = local_world;
  page->generation.store(1, std::memory_order_relaxed);
  for (RegionWords& region : page->regions) region.commit.store(Commit{}.pack(1), std::memory_order_relaxed);
  page->error.state.store(slot_mark(1, ErrorSlot::State::free), std::memory_order_relaxed);
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

void next_generation(ControlPage& page, int local_world) {
  check_local_world(local_world);
  roll_forward(page);
  const std::uint32_t next = page.generation.load(std::memory_order_relaxed) + 1;
  for (RegionWords& region : page.regions) {
    Mark word = region.commit.load(std::memory_order_seq_cst);
    while (!region.commit.compare_exchange_weak(word, Commit::unpack(word).pack(next), std::memory_order_seq_cst)) {
    }
  }
  for (int region = 0; region < kRegions; ++region) follow_others(page, region, next);
  for (RegionWords& region : page.regions) {
    replace(region.target, Commit{.step = Commit::kNoStep}.pack(next));
    region.together.store(0, std::memory_order_seq_cst);  // the program says so again
  }
  // What it failed of stays to be read (last_failure.h); what is older, or half written, does not.
  if (page.error.state.load(std::memory_order_seq_cst) != slot_mark(next - 1, ErrorSlot::State::written))
    page.error.cause[0] = '\0';
  page.error.state.store(slot_mark(next, ErrorSlot::State::free), std::memory_order_seq_cst);
  page.local_world = local_world;
  page.generation.store(next, std::memory_order_seq_cst);
}

bool raise_abort(ControlPage& page, std::uint32_t generation, const Failure& failure) {
  Mark state = slot_mark(generation, ErrorSlot::State::free);
  const bool first = page.error.state.compare_exchange_strong(state, slot_mark(generation, ErrorSlot::State::claimed));
  if (first) {
    page.error.rank = failure.rank;
    page.error.exit_code = failure.exit_code;
    page.error.step = failure.step;
    copy_text(page.error.phase, sizeof page.error.phase, failure.phase);
    copy_text(page.error.cause, sizeof page.error.cause, failure.cause);
    advance(page.error.state, slot_mark(generation, ErrorSlot::State::written));
  }
  std::uint32_t last = page.abort.load(std::memory_order_relaxed);
  while (last < generation && !page.abort.compare_exchange_weak(last, generation, std::memory_order_seq_cst)) {
  }
  futex_wake(page.abort);  // who waits for nothing but that
  wake_all(page);
  return first;
}

RegionWords& region_words(ControlPage& page, int region) {
  if (region < 0 || region >= kRegions)
    throw UsageError("a segment has regions 0 to " + std::to_string(kRegions - 1) + ", not " + std::to_string(region));
  return page.regions[region];
}

std::optional<int> region_of(const ControlPage& page, std::uint64_t model) {
  std::optional<int> free;
  for (int region = kRegions - 1; region >= 0; --region) {
    const std::uint64_t owner = page.regions[region].model.load(std::memory_order_acquire);
    if (owner == model) return region;
    if (owner == 0) free = region;
  }
  return free;
}

std::optional<Commit> committed(const RegionWords& region) {
  if (region.fingerprint.load(std::memory_order_acquire) == 0) return std::nullopt;
  return Commit::unpack(region.commit.load(std::memory_order_seq_cst));
}

std::optional<Mark> target_of(const RegionWords& region, std::uint32_t generation, std::uint64_t step) {
  const Mark target = region.target.load(std::memory_order_seq_cst);
  if (mark_generation(target) != generation || Commit::unpack(target).step != step) return std::nullopt;
  return target;
}

bool have_all_voted(const ControlPage& page, int region, std::uint32_t generation, std::uint64_t step) {
  const Mark wanted = make_mark(generation, step);
  for (int rank = 0; rank < page.local_world; ++rank)
    if (page.ranks[rank].votes[region].load(std::memory_order_seq_cst) != wanted) return false;
  return true;
}

bool try_commit(ControlPage& page, int region, std::uint32_t generation, std::uint64_t step) {
  const std::uint32_t together = page.regions[region].together.load(std::memory_order_seq_cst) | 1u << region;
  const auto in_each = [&](auto&& holds) {
    for (int one = 0; one < kRegions; ++one)
      if ((together >> one & 1) != 0 && !holds(one)) return false;
    return true;
  };
  // Nobody goes on to the next step before this holds of each, so until then all votes and targets stay.
  if (in_each([&](int one) { return is_committed(page.regions[one], generation, step); })) return true;
  return in_each([&](int one) { return have_all_voted(page, one, generation, step); }) &&
         in_each([&](int one) { return move_to_target(page.regions[one], generation, step); });
}

void roll_forward(ControlPage& page) {
  const std::uint32_t generation = page.generation.load(std::memory_order_relaxed);
  for (int region = 0; region < kRegions; ++region) {
    const Mark vote = page.ranks[0].votes[region].load(std::memory_order_seq_cst);
    if (mark_generation(vote) == generation) try_commit(page, region, generation, mark_count(vote));
  }
}

Failure read_failure(const ControlPage& page, std::uint32_t generation) {
  using namespace std::chrono_literals;
  const Mark written = slot_mark(generation, ErrorSlot::State::written);
  const auto state = [&] { return page.error.state.load(std::memory_order_acquire); };
  // A writer that was preempted in the middle needs a moment; one that died there never comes.
  for (int i = 0; i < 500 && state() < written; ++i) std::this_thread::sleep_for(1ms);
  if (state() > written)
    return {.cause = "this process belongs to an attempt that is over; the job goes on without it"};
  if (state() < written) return {.cause = "a rank failed and died before it could say why"};
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
