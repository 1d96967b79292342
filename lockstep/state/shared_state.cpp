#include "lockstep/state/shared_state.h"

#include <cstring>

#include "lockstep/base/pin.h"
#include "lockstep/base/text.h"
#include "lockstep/state/hash.h"

namespace lockstep::state {

using base::Commit;
using base::RegionWords;

namespace {

std::string called(const std::string& name) {
  return name.empty() ? "without a name" : "named '" + base::shown(name) + "'";
}

// Never 0, which is nobody.
std::uint64_t model_of(const std::string& name) { return hash64("model " + name) | 1; }

int find_region(const base::Segment& segment, const std::string& name) {
  const std::optional<int> region = base::region_of(segment.control(), model_of(name));
  if (region) return *region;
  throw UsageError("a group carries at most " + std::to_string(base::kRegions) + " models, and the one " +
                   called(name) + " is one more");
}

void make_region(base::Node& node, int region, const Layout& layout, const std::string& name) {
  const int buffers = layout.options().state_buffers;
  if (buffers < 1 || buffers > base::kMaxStateBuffers)
    throw UsageError("a state of " + std::to_string(buffers) + " buffers; 1 to " +
                     std::to_string(base::kMaxStateBuffers) + " are possible");
  node.segment.grow(base::state_area(region), layout.total_bytes(), layout.most_bytes());
  RegionWords& words = base::region_words(node.segment.control(), region);
  words.buffers.store(std::uint32_t(buffers), std::memory_order_relaxed);
  words.model.store(model_of(name), std::memory_order_release);
}

void check_region(const base::Segment& segment, int region, const Layout& layout, const std::string& name) {
  const RegionWords& words = base::region_words(segment.control(), region);
  if (words.generation.load() == segment.control().generation.load())
    throw UsageError("this group carries the state of a model " + called(name) +
                     " already; give each model a name of its own (DataParallelOptions::name)");
  if (words.buffers.load() < 2)
    throw Error("segment: the state was updated in place, and who did it may have died in the middle");
  if (words.fingerprint.load() != layout.fingerprint())
    throw Error(
        "segment: it holds the state of another model, optimizer, number of shards or set of kept bytes; start a new "
        "job");
  if (words.shares.load() != layout.options().shares || words.share.load() != layout.options().share ||
      (words.copied.load() != 0) != layout.options().copied)
    throw Error("segment: it holds share " + std::to_string(words.share.load()) + " of " +
                std::to_string(words.shares.load()) + " of the optimizer's state, and this node is to have share " +
                std::to_string(layout.options().share) + " of " + std::to_string(layout.options().shares) +
                (layout.options().copied ? ", and a copy" : "") + "; start a new job");
}

[[noreturn]] void throw_over(const std::string& what) {
  throw GroupAborted({.cause = "this process belongs to an attempt that is over: the next one began before " + what +
                               "; the job goes on without it"});
}

}  // namespace

SharedState::SharedState(base::Node& node, Layout layout, const Fill& fill, const std::string& name)
    : node_(node),
      name_(name),
      region_(find_region(node.segment, name)),
      words_(base::region_words(node.segment.control(), region_)),
      layout_(std::move(layout)) {
  const std::uint32_t generation = node_.member.generation();
  const bool leader = node_.member.rank() == 0;
  // The fingerprint is stored last: a region without one was never filled.
  const bool found = words_.fingerprint.load(std::memory_order_acquire) != 0;
  taken_over_ = found;
  if (found) layout_.set_state_buffers(int(words_.buffers.load()));
  const auto map = [&] {
    const std::size_t offset = node_.segment.extent(base::state_area(region_)).offset;
    readable_ =
        std::make_shared<base::Mapping>(node_.segment.map(offset, layout_.total_bytes(), base::Access::read_only));
    writable_ = node_.segment.map(offset, layout_.total_bytes(), base::Access::read_write);
  };
  try {
    if (found) check_region(node_.segment, region_, layout_, name_);
    node_.member.barrier();  // everybody has looked before anybody makes
    if (leader) {
      if (!found) make_region(node_, region_, layout_, name_);
      // Shards of a node that is gone may have come home: their slots take memory before a step needs it.
      if (found) node_.segment.extend(base::state_area(region_), layout_.total_bytes());
      map();
      // Slots must hold zeros between the parameters.
      if (found && words_.spread.load() != 0)
        std::memset(writable_.data() + layout_.block_sums(), 0, layout_.total_bytes() - layout_.block_sums());
      if (!found) {
        const Commit first{.step = fill(*this), .buffer = 0};
        if (!base::replace(words_.commit, first.pack(generation))) throw_over("the first state was committed");
      }
      if (!layout_.is_spread()) publish(attempts() + 1, layout_.options().shares > 1 ? set() : 0);
      if (layout_.is_spread()) words_.spread.store(1);
      words_.generation.store(generation);
    }
    node_.member.barrier();
    if (!leader) map();
  } catch (const GroupAborted&) {
    throw;
  } catch (const std::exception& error) {
    node_.member.fail(error.what(), exit_code(error));
    throw;
  }
}

Commit SharedState::committed() const {
  const Commit commit = Commit::unpack(words_.commit.load(std::memory_order_acquire));
  return ahead_.step > commit.step ? ahead_ : commit;
}

bool SharedState::is_ahead() const {
  return ahead_.step > Commit::unpack(words_.commit.load(std::memory_order_acquire)).step;
}

void SharedState::check_settled(const char* what) const {
  if (is_ahead())
    throw UsageError(std::string(what) + ": the model " + called(name_) + " has made step " +
                     std::to_string(ahead_.step) +
                     ", which is committed together with that of other models; they make it first");
}

void SharedState::commit_together(std::span<SharedState* const> states) {
  if (states.size() < 2) throw UsageError("commit_together: give two models or more");
  std::uint32_t together = 0;
  const SharedState& first = *states.front();
  for (const SharedState* const state : states) {
    state->check_settled("commit_together");
    if (&state->node_ != &first.node_) throw UsageError("commit_together: the models are of different groups");
    if (state->committed().step != first.committed().step)
      throw UsageError("commit_together: the model " + called(first.name_) + " is at step " +
                       std::to_string(first.committed().step) + " and the one " + called(state->name_) + " at step " +
                       std::to_string(state->committed().step) + "; models that commit together make the same steps");
    if (state->words_.together.load() != 0 || (together >> state->region_ & 1) != 0)
      throw UsageError("commit_together: the model " + called(state->name_) + " commits together with others already");
    together |= 1u << state->region_;
  }
  base::Member& member = first.node_.member;
  member.barrier();  // all have looked
  if (member.rank() == 0)
    for (const SharedState* const state : states) state->words_.together.store(together);
  member.barrier();
}

// Whether a state that commits with this one has still to make the step, by what this rank has done.
bool SharedState::waits_for_others(std::uint64_t step) const {
  base::Member& member = node_.member;
  const std::uint32_t together = words_.together.load();
  const base::Mark mark = base::make_mark(member.generation(), step);
  for (int region = 0; region < base::kRegions; ++region)
    if ((together >> region & 1) != 0 && !base::has_reached(member.words().votes[region].load(), mark)) return true;
  return false;
}

void SharedState::choose_target(std::uint64_t step) {
  base::Member& member = node_.member;
  member.check_abort();
  const int buffers = layout_.options().state_buffers;
  const int current = int(committed().buffer);
  int chosen = (current + 1) % buffers;  // of one or two there is no choice: no call of the kernel
  const auto is_found = [&] {
    for (int i = 1; i < buffers; ++i) {
      chosen = (current + i) % buffers;
      if (!base::is_pinned(node_.segment, region_, chosen)) return true;
    }
    return false;
  };
  if (buffers > 2 && !is_found()) {
    const base::Phase before = member.phase();
    member.set_phase(base::Phase::pinned);        // which is what peers tell whose patience ends first
    const auto owed = [](int) { return false; };  // by no peer: pins are of other processes
    member.wait(is_found, owed, "a state buffer that nobody has pinned");
    member.set_phase(before);
  }
  const Commit target{.step = step, .buffer = std::uint32_t(chosen)};
  if (!base::replace(words_.target, target.pack(member.generation()))) throw_over("a buffer was chosen");
}

int SharedState::target(std::uint64_t step) const { return int(Commit::unpack(target_word(step)).buffer); }

base::Mark SharedState::target_word(std::uint64_t step) const {
  const base::Mark word = words_.target.load(std::memory_order_seq_cst);
  if (base::mark_generation(word) != node_.member.generation())
    throw_over("step " + std::to_string(step) + " was written");
  if (const Commit target = Commit::unpack(word); target.step != step)
    throw Error("state: no buffer was chosen for step " + std::to_string(step) + ", the last one is for step " +
                std::to_string(target.step) + ": do all ranks make the same calls?");
  return word;
}

bool SharedState::is_held() const {
  for (int region = 0; region < base::kRegions; ++region) {
    const RegionWords& words = base::region_words(node_.segment.control(), region);
    if (words.generation.load() != node_.member.generation()) continue;
    for (int buffer = 0; buffer < int(words.buffers.load()); ++buffer)
      if (base::is_pinned(node_.segment, region, buffer)) return true;
  }
  return false;
}

void SharedState::vote(std::uint64_t step) {
  base::Member& member = node_.member;
  base::ControlPage& page = member.page();
  member.check_abort();
  const base::Mark mark = base::make_mark(member.generation(), step);
  base::advance(page.ranks[member.rank()].votes[region_], mark);
  const bool ahead = waits_for_others(step);
  const auto ready = [&] {
    return base::try_commit(page, region_, member.generation(), step) ||
           (ahead && base::have_all_voted(page, region_, member.generation(), step));
  };
  if (ready()) {
    base::wake_all(page);
  } else {
    member.wait(ready, [&](int peer) {
      return !base::has_reached(page.ranks[peer].votes[region_].load(std::memory_order_seq_cst), mark);
    });
  }
  if (ahead) ahead_ = Commit::unpack(target_word(step));
}

void SharedState::recommit() {
  const std::uint32_t generation = node_.member.generation();
  base::Mark word = words_.commit.load(std::memory_order_seq_cst);
  // Between two barriers nobody else commits: a word of another generation means that the next one has begun, which
  // writes its number here before the page tells it.
  if (base::mark_generation(word) != generation) throw_over("modify() was committed");
  const base::Mark target = target_word(Commit::unpack(word).step);
  if (!words_.commit.compare_exchange_strong(word, target, std::memory_order_seq_cst))
    throw_over("modify() was committed");
}

void SharedState::set_committed(const Commit& commit) {
  if (!base::replace(words_.commit, commit.pack(node_.member.generation()))) throw_over("a state was committed");
}

std::string SharedState::buffer_hash(int buffer) const {
  const std::string content = hash128({read_as<char>(layout_.weights(buffer)), layout_.content_bytes()});
  if (layout_.frozen_bytes() == 0) return content;
  return hash128(content + hash128({read_as<char>(layout_.frozen_area(frozen_area(buffer))), layout_.frozen_bytes()}));
}

std::string SharedState::common_hash(int buffer) const {
  if (layout_.options().shares == 1) return buffer_hash(buffer);
  std::string hashes;
  for (const Slice& bytes : layout_.common(buffer))
    hashes += hash128({read_as<char>(bytes.begin), bytes.end - bytes.begin});
  return hash128(hashes + hash128({read_as<char>(layout_.frozen_area(frozen_area(buffer))), layout_.frozen_bytes()}));
}

bool is_committed_in(const base::Segment& segment, const std::string& name) {
  const std::optional<int> region = base::region_of(segment.control(), model_of(name));
  return region && base::committed(base::region_words(segment.control(), *region));
}

std::vector<int> other_buffers_of(const SharedState& state, std::uint64_t step) {
  const Layout& layout = state.layout();
  const int now = int(state.committed().buffer);
  std::vector<int> found;
  for (int buffer = 0; buffer < layout.options().state_buffers; ++buffer)
    if (buffer != now && state.read_as<StepRecord>(layout.step_record(buffer))->step == step) found.push_back(buffer);
  return found;
}

HeldState held_in(const base::Segment& segment, const std::string& name) {
  const std::optional<int> region = base::region_of(segment.control(), model_of(name));
  if (!region) return {};
  const RegionWords& words = base::region_words(segment.control(), *region);
  // One of this generation's is in use: whoever makes another by its name is told so (check_region).
  if (!base::committed(words) || words.generation.load() == segment.control().generation.load()) return {};
  return {.is_there = true,
          .set = words.set.load(),
          .attempts = words.attempts.load(),
          .shares = words.shares.load(),
          .share = words.share.load(),
          .copied = words.copied.load() != 0};
}

void forget(const base::Segment& segment, const std::string& name) {
  if (const std::optional<int> region = base::region_of(segment.control(), model_of(name)))
    base::region_words(segment.control(), *region).fingerprint.store(0);
}

int spare_frozen_area(const SharedState& state, int buffer) {
  const int buffers = state.layout().options().state_buffers;
  const auto is_taken = [&](int area) {
    for (int other = 0; other < buffers; ++other)
      if (other != buffer && state.frozen_area(other) == area) return true;
    return false;
  };
  int area = 0;
  while (is_taken(area)) ++area;  // there is one more than other buffers
  return area;
}

}  // namespace lockstep::state
