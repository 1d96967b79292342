#include "lockstep/state/shared_state.h"

#include "lockstep/state/hash.h"

namespace lockstep::state {

using base::Commit;
using base::ControlPage;

namespace {

void make_region(base::Node& node, const Layout& layout) {
  ControlPage& page = node.segment.control();
  node.segment.grow(base::Part::state, layout.total_bytes());
  page.state_buffers.store(std::uint32_t(layout.options().state_buffers), std::memory_order_relaxed);
}

void check_region(const ControlPage& page, const Layout& layout) {
  if (page.state_generation.load() == page.generation.load())
    throw UsageError("this group carries the state of a model already; a group serves one model and optimizer");
  if (page.state_buffers.load() < 2)
    throw Error("segment: the state was updated in place, and who did it may have died in the middle");
  if (page.state_fingerprint.load() != layout.fingerprint())
    throw Error("segment: it holds the state of another model, optimizer or number of shards; start a new job");
}

}  // namespace

SharedState::SharedState(base::Node& node, Layout layout, const std::function<void(SharedState&)>& fill)
    : node_(node), layout_(std::move(layout)) {
  ControlPage& page = node_.segment.control();
  const bool leader = node_.member.rank() == 0;
  // The fingerprint is stored last: a region without one was never filled.
  const bool found = page.state_fingerprint.load(std::memory_order_acquire) != 0;
  if (found) layout_.set_state_buffers(int(page.state_buffers.load()));
  const auto map = [&] {
    const std::size_t offset = node_.segment.extent(base::Part::state).offset;
    readable_ =
        std::make_shared<base::Mapping>(node_.segment.map(offset, layout_.total_bytes(), base::Access::read_only));
    writable_ = node_.segment.map(offset, layout_.total_bytes(), base::Access::read_write);
  };
  try {
    if (found) check_region(page, layout_);
    node_.member.barrier();  // everybody has looked before anybody makes
    if (leader) {
      if (!found) make_region(node_, layout_);
      map();
      if (!found) {
        fill(*this);
        page.state_fingerprint.store(layout_.fingerprint(), std::memory_order_release);
      }
      page.state_generation.store(node_.member.generation());
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
  return Commit::unpack(node_.segment.control().commit.load(std::memory_order_acquire));
}

int SharedState::target() const { return base::next_buffer(int(committed().buffer), layout_.options().state_buffers); }

void SharedState::vote(std::uint64_t step) {
  base::Member& member = node_.member;
  ControlPage& page = node_.segment.control();
  member.check_abort();
  const base::Mark mark = base::make_mark(member.generation(), step);
  base::advance(member.words().vote, mark);
  const auto ready = [&] { return base::try_commit(page, member.generation(), step); };
  if (ready()) return base::wake_all(page);
  member.wait(
      ready, [&](int peer) { return !base::has_reached(page.ranks[peer].vote.load(std::memory_order_seq_cst), mark); });
}

void SharedState::recommit(int buffer) {
  const base::Member& member = node_.member;
  base::Mark word = member.page().commit.load(std::memory_order_seq_cst);
  Commit commit = Commit::unpack(word);
  commit.buffer = std::uint32_t(buffer);
  // Between two barriers nobody else commits: a word of another generation means that the next one has begun, which
  // writes its number here before the page tells it.
  if (base::mark_generation(word) != member.generation() ||
      !member.page().commit.compare_exchange_strong(word, commit.pack(member.generation()), std::memory_order_seq_cst))
    throw GroupAborted({.cause = "the next attempt began before modify() was committed; the job goes on without it"});
}

std::string SharedState::buffer_hash(int buffer) const {
  const std::string content = hash128({read_as<char>(layout_.weights(buffer)), layout_.content_bytes()});
  if (layout_.frozen_bytes() == 0) return content;
  return hash128(content + hash128({read_as<char>(layout_.frozen_area(frozen_area(buffer))), layout_.frozen_bytes()}));
}

}  // namespace lockstep::state
