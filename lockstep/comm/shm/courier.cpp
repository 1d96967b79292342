#include "lockstep/comm/shm/courier.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/comm/shm/in_collective.h"

namespace lockstep::comm {
namespace {

constexpr std::size_t kLine = 64;

}  // namespace

// A half is divided among the peers, and each part in two: one to write while the other is read.
Courier::Courier(base::Member& member, const Staging& staging, int half, Messages& messages)
    : member_(member),
      staging_(staging),
      half_(half),
      messages_(messages),
      chunk_(Staging::kHalf / std::size_t(member.size()) / 2 / kLine * kLine),
      out_(std::size_t(member.size())),
      in_(std::size_t(member.size())) {}

std::byte* Courier::chunk(int rank, int half, int to, std::uint64_t number) const {
  return staging_.half(rank, half) + (2 * std::size_t(to) + (number & 1)) * chunk_;
}

std::uint64_t Courier::count(const std::atomic<base::Mark>& word) const {
  const base::Mark mark = word.load(std::memory_order_seq_cst);
  return base::mark_generation(mark) == member_.generation() ? base::mark_count(mark) : 0;
}

void Courier::set(std::atomic<base::Mark>& word, std::uint64_t count) const {
  base::advance(word, base::make_mark(member_.generation(), count));
}

bool Courier::is_owed(int peer) const {
  return !out_[std::size_t(peer)].messages.empty() || !in_[std::size_t(peer)].messages.empty();
}

bool Courier::is_idle() const {
  for (int peer = 0; peer < member_.size(); ++peer)
    if (is_owed(peer)) return false;
  return true;
}

std::string Courier::first_of_all() const {
  for (const std::vector<Queue>* queues : {&in_, &out_})
    for (const Queue& queue : *queues)
      if (!queue.messages.empty()) return describe(queue.messages.front()->note);
  return "no message";
}

// Each turn begins where something could be moved: the deadline is for one that cannot.
void Courier::run() {
  const InCollective in_collective(member_);
  const Described described(member_,
                            {.text = [](const void* of) { return static_cast<const Courier*>(of)->first_of_all(); },
                             .of = this,
                             .alone = true});
  begin();
  do {
    member_.check_abort();
    // What has come counts before begin(), which may look at a deadline: this rank itself may have been held up.
    if (move()) base::wake_all(member_.page());
    begin();
    if (is_idle()) return;
    bool moved = false;
    member_.wait(
        [&] {
          const bool has_moved = move();
          moved = begin() || has_moved || moved;
          return moved;
        },
        [&](int peer) { return is_owed(peer); });
    base::wake_all(member_.page());
  } while (true);
}

// Whether anything new has come.
bool Courier::begin() {
  bool any = false;
  while (Message* const message = messages_.next()) {
    (message->way == Way::send ? out_ : in_)[std::size_t(message->peer)].messages.push_back(message);
    any = true;
  }
  return any;
}

bool Courier::move() {
  bool any = false;
  for (int peer = 0; peer < member_.size(); ++peer) {
    if (!out_[std::size_t(peer)].messages.empty()) any = move_out(peer) || any;
    if (!in_[std::size_t(peer)].messages.empty()) any = move_in(peer) || any;
  }
  return any;
}

void Courier::finish(Queue& queue) {
  Message& message = *queue.messages.front();
  queue.messages.pop_front();
  queue.bytes = 0;
  queue.chunks = 0;
  messages_.moved(message);
}

bool Courier::move_out(int peer) {
  Queue& queue = out_[std::size_t(peer)];
  const Message& message = *queue.messages.front();
  Lane& lane = staging_.lane(member_.rank(), peer);
  const std::uint64_t written = count(lane.written), taken = count(staging_.lane(peer, member_.rank()).taken);
  if (queue.is_copied()) {
    if (taken < written) return false;
    finish(queue);
    return true;
  }
  if (written - taken >= 2) return false;
  if (queue.chunks == 0) {
    lane.note = message.note;
    lane.half = half_;
  }
  const std::size_t bytes = std::min(chunk_, message.bytes.size() - queue.bytes);
  if (bytes > 0) std::memcpy(chunk(member_.rank(), half_, peer, written), message.bytes.data() + queue.bytes, bytes);
  queue.bytes += bytes;
  ++queue.chunks;
  set(lane.written, written + 1);
  return true;
}

bool Courier::move_in(int peer) {
  Queue& queue = in_[std::size_t(peer)];
  const Message& message = *queue.messages.front();
  const Lane& theirs = staging_.lane(peer, member_.rank());
  std::atomic<base::Mark>& mine = staging_.lane(member_.rank(), peer).taken;
  const std::uint64_t written = count(theirs.written), taken = count(mine);
  if (written == taken) return false;
  if (queue.chunks == 0) check_note(peer, theirs.note);
  const std::size_t bytes = std::min(chunk_, message.bytes.size() - queue.bytes);
  if (bytes > 0)
    std::memcpy(message.bytes.data() + queue.bytes, chunk(peer, theirs.half, member_.rank(), taken), bytes);
  queue.bytes += bytes;
  ++queue.chunks;
  set(mine, taken + 1);
  if (queue.is_copied()) finish(queue);
  return true;
}

void Courier::check_note(int peer, const CollectiveNote& theirs) {
  const CollectiveNote& mine = in_[std::size_t(peer)].messages.front()->note;
  if (!member_.compares_calls() || answers(mine, theirs)) return;
  const std::string cause = disagreement(member_.name_of(member_.rank()), mine, member_.name_of(peer), theirs);
  member_.fail(cause);
  throw Error(cause);
}

}  // namespace lockstep::comm
