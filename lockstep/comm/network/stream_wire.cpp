#include "lockstep/comm/network/stream_wire.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "lockstep/base/calling.h"
#include "lockstep/base/member.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/stack_on_request.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/network/frame.h"
#include "lockstep/comm/network/stream_link.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

// So much of a message is summed and moved at a time: its bytes are still in the cache.
constexpr std::size_t kPiece = std::size_t(256) << 10;

// A wire that is cut says nothing. The kernel asks the other machine from time to time, on the connection that is
// silent otherwise: the other one may be full for long because its reader computes. A quarter of the group's timeout,
// 2 s at least and 20 s at most: a wire is mended within that, or not soon.
void keep_alive(int fd, milliseconds timeout) {
  constexpr int kQuestions = 4;
  const auto limit = std::clamp<milliseconds>(timeout / 4, 2s, 20s);
  const int on = 1, seconds = std::max(1, int(limit / 1s) / kQuestions), more = kQuestions - 1;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &more, sizeof more);
}

// "all_reduce(3 x Float, op 0), step 12". The exchange of a step says so itself.
std::string called_in(const CollectiveNote& note, std::uint64_t step) {
  return describe(note) + (step > 0 && note.collective != Collective::step ? ", step " + std::to_string(step) : "");
}

}  // namespace

StreamWire::StreamWire(Mesh mesh, Settings settings, std::unique_ptr<Streams> streams)
    : mesh_(std::move(mesh)),
      streams_(streams ? std::move(streams) : tcp_streams(mesh_)),
      settings_(std::move(settings)),
      links_(mesh_.peers.size()) {
  for (const MeshPeer& peer : mesh_.peers)
    if (peer.news) keep_alive(peer.news.get(), settings_.timeout);
}

// Who leaves because its node has failed says so: the others may wait for what it owes them.
StreamWire::~StreamWire() {
  if (process_ != base::process_id()) return;  // a forked child is nobody
  try {
    settings_.ties.check();
    tell_all({.rank = name_of(settings_.rank), .kind = NewsKind::left});
  } catch (const GroupAborted& aborted) {
    abort(aborted.failure());
  }
}

void StreamWire::abort(const Failure& failure) {
  streams_->give_up();
  tell_all(news_of(failure));
}

// However it ends early, the wire is of no use any more: what is under way belongs to the caller.
void StreamWire::carry(Messages& messages) {
  if (over_) throw GroupAborted(*over_);
  const Away away(settings_.ties);
  try {
    move_all(messages);
  } catch (const GroupAborted& aborted) {  // of this node perhaps, which the others wait for
    end(aborted.failure());
    throw;
  } catch (const std::exception& error) {
    end({.rank = name_of(settings_.rank), .cause = error.what()});
    throw;
  }
}

void StreamWire::end(const Failure& failure) {
  if (!over_) over_ = failure;
  for (Link& link : links_) {
    link.out.clear();
    link.in.clear();
  }
  abort(failure);
}

// Whether anything new has come.
bool StreamWire::begin(Messages& messages) {
  bool any = false;
  while (Message* const message = messages.next()) {
    Link& link = links_[std::size_t(message->peer)];
    (message->way == Way::send ? link.out : link.in).push_back(message);
    any = true;
  }
  return any;
}

void StreamWire::move_all(Messages& messages) {
  settings_.ties.check();
  hear_news(0ms);
  if (const auto failure = heard()) fail(*failure);
  told_stall_ = false;
  for (Link& link : links_) link.has_come = false;
  Clock::time_point moved = Clock::now();
  for (;;) {
    bool any_moved = false, any_left = false;
    for (Link& link : links_) {
      while (!link.out.empty() && move_out(link, messages)) any_moved = true;
      while (!link.in.empty() && move_in(link, messages)) any_moved = true;
      any_left = any_left || !link.out.empty() || !link.in.empty();
    }
    if (begin(messages)) {
      moved = Clock::now();
      continue;
    }
    if (!any_left) return;
    if (any_moved) moved = Clock::now();
    // Who fails behind this exchange has sent what it owes it.
    const std::optional<Failure> failure = heard();
    if (failure && !any_moved && !may_come(moved)) fail(*failure);
    if (!failure || may_come(moved)) wait_for(moved);
  }
}

// Whether anything was moved.
bool StreamWire::move_out(Link& link, Messages& messages) {
  const int peer = int(&link - links_.data());
  Message& message = *link.out.front();
  Frame& frame = link.outgoing;
  if (frame.moved == 0) {
    frame.header = {.magic = kWireMagic,
                    .number = link.messages_out + 1,
                    .bytes = message.bytes.size(),
                    .step = settings_.ties.step(),
                    .note = message.note};
    frame.header.sum = frame.header.sum_of();
  }
  std::size_t sent = 0;
  if (!frame.is_whole(message.bytes)) {
    const std::size_t end = std::min(frame.moved_bytes() + kPiece, message.bytes.size());
    frame.add_up(message.bytes, end);
    frame.sum = frame.running;
    const Moved moved = streams_->send(peer, frame.rest(message.bytes, end));
    if (!moved.error.empty()) lost(peer, moved.error);
    frame.moved += sent = moved.bytes;
  }
  if (!frame.is_whole(message.bytes)) return sent > 0;
  const Sent all = streams_->sent(peer);
  if (!all.error.empty()) lost(peer, all.error);
  if (!all.done) return sent > 0;
  bytes_sent_ += message.bytes.size();
  link.out.pop_front();
  frame = {};
  ++link.messages_out;
  messages.moved(message);
  return true;
}

bool StreamWire::move_in(Link& link, Messages& messages) {
  const int peer = int(&link - links_.data());
  Message& message = *link.in.front();
  Frame& frame = link.incoming;
  const bool in_header = frame.moved < sizeof(Frame::Header);
  const std::size_t end = in_header ? 0 : std::min(frame.moved_bytes() + kPiece, message.bytes.size());
  std::array<iovec, 3> pieces = frame.rest(message.bytes, end);
  if (in_header) pieces[2].iov_len = 0;  // which says whether anything may follow
  const Moved moved = streams_->receive(peer, pieces);
  if (moved.ended || !moved.error.empty()) lost(peer, moved.error);
  if (moved.bytes == 0) return false;
  frame.moved += moved.bytes;
  if (in_header && frame.moved == sizeof(Frame::Header)) check_header(link);
  if (!in_header) frame.add_up(message.bytes, std::min(frame.moved_bytes(), message.bytes.size()));
  if (frame.is_whole(message.bytes)) {
    check_sum(link);
    link.in.pop_front();
    link.has_come = true;
    frame = {};
    messages.moved(message);
  }
  return true;
}

void StreamWire::check_header(Link& link) {
  const int peer = int(&link - links_.data());
  const Frame::Header& header = link.incoming.header;
  const Message& expected = *link.in.front();
  const std::uint64_t number = ++link.messages_in;
  if (header.sum != header.sum_of()) refuse(damaged(peer, expected.note));
  if (header.magic != kWireMagic || header.number != number)
    refuse(shown(peer) + " sent what is no message of this group");
  if (settings_.ties.check_calls && !answers(expected.note, header.note))
    refuse(disagreement(name_of(settings_.rank), expected.note, name_of(peer), header.note));
  if (header.bytes != expected.bytes.size())
    refuse(shown(peer) + " sent " + std::to_string(header.bytes) + " bytes where " +
           std::to_string(expected.bytes.size()) + " were expected");
  link.said = header.note;
  link.said_in = header.step;
}

void StreamWire::check_sum(Link& link) {
  const Frame& frame = link.incoming;
  if (frame.sum == frame.running) return;
  refuse(damaged(int(&link - links_.data()), frame.header.note));
}

std::string StreamWire::damaged(int peer, const CollectiveNote& note) const {
  return "what " + shown(peer) + " sent came damaged, in " + describe(note) + ": its CRC-32C is another";
}

void StreamWire::refuse(const std::string& cause) {
  settings_.ties.failed({.rank = name_of(settings_.rank), .cause = cause});
  throw Error(cause);
}

void StreamWire::wait_for(Clock::time_point moved) {
  std::vector<pollfd> polled = news_polled();
  for (std::size_t peer = 0; peer < links_.size(); ++peer) {
    const short events = short((links_[peer].in.empty() ? 0 : POLLIN) | (links_[peer].out.empty() ? 0 : POLLOUT));
    polled.push_back({.fd = events == 0 ? -1 : streams_->polled(int(peer)), .events = events, .revents = 0});
  }
  const auto nap = std::min<std::chrono::nanoseconds>(kSlice, streams_->nap(Clock::now() - moved));
  const timespec time{.tv_sec = 0, .tv_nsec = nap.count()};
  if (ppoll(polled.data(), polled.size(), &time, nullptr) < 0 && errno != EINTR) throw_errno("wire: poll");
  read_news(polled);
  settings_.ties.check();
  if (Clock::now() - moved > base::kAnswerBehind) tell_askers([this] { return owed_names(); });
  for (std::size_t peer = 0; peer < links_.size(); ++peer)
    if (links_[peer].is_owed() && !heard())
      if (const std::string cut = cut_of(int(peer)); !cut.empty()) lost(int(peer), cut);
  for (std::size_t peer = 0; peer < links_.size() && streams_->end_with_news(); ++peer)
    if (links_[peer].is_owed() && is_silent(int(peer), moved)) lost(int(peer), "");
  const auto waited = Clock::now() - moved;
  if (waited >= settings_.timeout) give_up();
  if (settings_.ties.stall_warning.count() > 0 && waited >= settings_.ties.stall_warning) tell_stall();
}

// Where one alone is late it is his failure, and the text says who waited. But it may wait itself, for one beside it on
// its node or for another one abroad. So it is asked, and so are those for whom it waits: who answers is not late. One
// may tell of a failure at about this time, too, and those who know the least speak last.
void StreamWire::give_up() {
  const std::vector<int> late = owed_peers();
  const Clock::time_point end = Clock::now() + grace_for(late);
  std::vector<int> silent = ask_on(late);
  while (Clock::now() < end) {
    hear_news(kSlice);
    if (const auto failure = heard()) fail(*failure);
    settings_.ties.check();
    tell_askers([this] { return owed_names(); });
    for (const int peer : late)
      if (are_news_over(peer)) lost(peer, cut_of(peer));
    silent = ask_on(late);
  }
  const int culprit = silent.size() == 1 ? silent[0] : late.size() == 1 ? late[0] : settings_.rank;
  const bool is_told = culprit == settings_.rank || late == std::vector<int>{culprit};
  fail({.rank = name_of(culprit),
        .cause = (culprit == settings_.rank ? "" : "rank " + std::to_string(name_of(settings_.rank)) + " ") +
                 "waited " + std::to_string(settings_.timeout.count()) + " ms for " + late_peers() +
                 (is_told ? "" : "; of all that are waited for " + shown(culprit) + " alone waits for nobody")});
}

// Where no node has several ranks, who alone is late waits for nobody: who waits for it, too, has all of the others.
std::chrono::milliseconds StreamWire::grace_for(const std::vector<int>& late) const {
  const milliseconds word = word_time(settings_.timeout);
  if (late.size() != 1) return 2 * word;
  const auto sharing = std::ranges::adjacent_find(mesh_.peers, std::ranges::equal_to(), &MeshPeer::node);
  const bool share_nodes = sharing != mesh_.peers.end();
  return share_nodes ? word : milliseconds(0);
}

std::vector<int> StreamWire::owed_peers() const {
  std::vector<int> peers;
  for (std::size_t peer = 0; peer < links_.size(); ++peer)
    if (links_[peer].is_owed()) peers.push_back(int(peer));
  return peers;
}

std::vector<int> StreamWire::owed_names() const {
  std::vector<int> names;
  for (const int peer : owed_peers()) names.push_back(name_of(peer));
  return names;
}

// While somebody is.
const CollectiveNote& StreamWire::awaited() const {
  return std::ranges::find_if(links_, [](const Link& link) { return link.is_owed(); })->first().note;
}

std::string StreamWire::late_peers() const {
  std::string late;
  for (std::size_t peer = 0; peer < links_.size(); ++peer)
    if (links_[peer].is_owed()) late += (late.empty() ? "" : ", ") + placed(int(peer));
  return late + " in " + called_in(awaited(), settings_.ties.step());
}

// "0, 3 to 7": the ranks of which this exchange has got all that it wants.
std::string StreamWire::arrived() const {
  std::vector<int> ranks;
  for (std::size_t peer = 0; peer < links_.size(); ++peer)
    if (links_[peer].has_come && !links_[peer].is_owed()) ranks.push_back(name_of(int(peer)));
  return base::runs_text(ranks);
}

// Whether none of a lower seat does. One that this rank waits for has something else to say, if anything.
bool StreamWire::speaks_for_its_node() const {
  for (int peer = 0; peer < settings_.rank; ++peer) {
    const int seat = seat_of(peer);
    if (seat < 0) continue;
    if (!links_[std::size_t(peer)].is_owed() && settings_.ties.is_away(seat)) return false;
  }
  return true;
}

void StreamWire::tell_stall() {
  if (std::exchange(told_stall_, true)) return;
  const Collective what = awaited().collective;
  const bool is_message = what == Collective::send || what == Collective::recv;
  if (!is_message && !speaks_for_its_node()) return;
  const std::string here = is_message ? "" : arrived();
  base::Outlet::console(STDERR_FILENO)
      .offer("lockstep: rank " + std::to_string(name_of(settings_.rank)) + " has waited " +
             std::to_string(settings_.ties.stall_warning.count()) + " ms for " + late_peers() + base::Calling::told() +
             (here.empty() ? "" : "; others that have arrived: " + here) + "\n");
  int asked = 0;
  for (int peer = 0; peer < int(links_.size()) && asked < base::kMostAsked; ++peer) {
    const int seat = links_[std::size_t(peer)].is_owed() ? seat_of(peer) : -1;
    if (seat >= 0 && settings_.ties.ask_where(seat)) ++asked;
  }
}

// The news may explain it.
void StreamWire::lost(int peer, const std::string& how) {
  const Clock::time_point deadline = Clock::now() + kNewsTime;
  while (!are_news_over(peer) && !heard() && Clock::now() < deadline) hear_news(kSlice);
  if (const auto failure = heard()) fail(*failure);
  settings_.ties.check();
  const std::string me = "rank " + std::to_string(name_of(settings_.rank));
  // Of a dead process a backend tells in words of its own, which say where in it that was seen.
  const bool is_dead = how.empty() || (streams_->end_with_news() && are_news_over(peer) && cut_of(peer).empty());
  fail({.rank = name_of(peer),
        .cause = has_left(peer) ? "left the group while " + me + " waited for it"
                 : is_dead      ? "its connection was closed: " + shown(peer) + " ended without a word"
                                : "its connection broke: " + shown(peer) + ": " + how});
}

void StreamWire::fail(Failure failure) {
  settings_.ties.failed(failure);
  throw GroupAborted(std::move(failure));
}

std::string StreamWire::shown(int peer) const {
  return "rank " + std::to_string(name_of(peer)) + " (" + mesh_.peers[std::size_t(peer)].host + ")";
}

// At this rank's node; -1: the peer is on another.
int StreamWire::seat_of(int peer) const {
  const int node = mesh_.peers[std::size_t(settings_.rank)].node;
  if (mesh_.peers[std::size_t(peer)].node != node) return -1;
  return int(std::count_if(mesh_.peers.begin(), mesh_.peers.begin() + peer,
                           [&](const MeshPeer& lower) { return lower.node == node; }));
}

// With what this rank's node knows of it or, on another one, with what it has said last.
std::string StreamWire::placed(int peer) const {
  const int seat = seat_of(peer);
  const Link& link = links_[std::size_t(peer)];
  const std::string place = seat >= 0               ? settings_.ties.place_of(seat)
                            : link.messages_in == 0 ? ""
                                                    : "last heard of in " + called_in(link.said, link.said_in);
  return "rank " + std::to_string(name_of(peer)) + " (" + mesh_.peers[std::size_t(peer)].host +
         (place.empty() ? "" : ": " + place) + ")";
}

}  // namespace lockstep::comm
