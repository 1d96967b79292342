// A wire within a wire: its ranks tell each other over the outer one where they listen.

#include <algorithm>
#include <functional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/network/stream_wire.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::comm {
namespace {

// What a rank says to the others of the part.
struct Whereabouts {
  rendezvous::SocketAddress address;  // where it listens
  Token token{};                      // the first rank's counts
  std::int64_t offer = 0;             // of its streams
};

}  // namespace

std::unique_ptr<Wire> StreamWire::part(const std::vector<int>& ranks, WireTies ties) {
  const auto mine = std::find(ranks.begin(), ranks.end(), settings_.rank) - ranks.begin();
  const base::UniqueFd listener = listener_at(name_of(settings_.rank), mesh_.own, "its own address");
  std::vector<Whereabouts> places(ranks.size());
  places[std::size_t(mine)] = {
      .address = rendezvous::own_end(listener.get()), .token = new_token(), .offer = streams_->offer()};
  const CollectiveNote note{.collective = Collective::new_group};
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  Mesh mesh{.peers = {}, .own = mesh_.own};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const MeshPeer& peer = mesh_.peers[std::size_t(ranks[i])];
    mesh.peers.push_back({.data = {}, .news = {}, .host = peer.host, .node = peer.node, .rank = peer.rank});
    if (ranks[i] == settings_.rank) continue;
    out.push_back({.peer = ranks[i], .bytes = std::as_bytes(std::span(&places[std::size_t(mine)], 1))});
    in.push_back({.peer = ranks[i], .bytes = std::as_writable_bytes(std::span(&places[i], 1))});
  }
  exchange(note, out, in);
  Roster roster{.rank = int(mine), .token = places[0].token, .addresses = {}, .timeout = settings_.timeout};
  std::int64_t highest = 0;
  for (const Whereabouts& place : places) {
    roster.addresses.push_back(place.address);
    highest = std::max(highest, place.offer);
  }
  connect_part(ranks, listener.get(), roster, mesh);
  const std::chrono::milliseconds timeout = settings_.timeout;
  std::unique_ptr<Streams> streams = streams_->part(mesh, highest);
  return std::make_unique<StreamWire>(
      std::move(mesh), Settings{.rank = int(mine), .timeout = timeout, .ties = std::move(ties)}, std::move(streams));
}

// Of who dies meanwhile the outer wire's news connection tells, and it is named instead of what failed for its sake;
// who alone is late, too. Nobody returns, and might leave the outer wire, before all are connected.
void StreamWire::connect_part(const std::vector<int>& ranks, int listener, const Roster& roster, Mesh& mesh) {
  const Away away(settings_.ties);
  const auto check = [&](std::chrono::milliseconds time) {
    hear_news(time);
    if (const auto failure = heard()) fail(*failure);
    settings_.ties.check();
    for (const int rank : ranks)
      if (rank != settings_.rank && are_news_over(rank)) lost(rank, cut_of(rank));
  };
  const std::function<void()> look = [&] { check({}); };
  // Who misses a connection knows who is late: it tells before those who wait for them both give up.
  const auto sooner = std::max(roster.timeout - 2 * kNewsTime, roster.timeout / 2);
  const Patience patience{Clock::now() + sooner, look};
  try {
    connect_all(listener, roster, mesh.peers, patience);
  } catch (const GroupAborted&) {
    throw;
  } catch (const Error& error) {
    const bool in_time = !patience.is_over();
    std::vector<int> late;
    for (const MeshPeer& peer : mesh.peers)
      if (peer.rank != name_of(settings_.rank) && (!peer.data || !peer.news)) late.push_back(peer.rank);
    // One of several may wait for another, whose address it has not got yet: it tells when its time is over.
    const auto told_within = in_time            ? kNewsTime
                             : late.size() == 1 ? kSlice
                                                : roster.timeout - sooner + 2 * word_time(roster.timeout);
    const Clock::time_point end = Clock::now() + told_within;
    while (Clock::now() < end) check(kSlice);
    if (in_time || late.size() != 1) throw;
    fail({.rank = late[0], .cause = error.what()});
  }
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (const int rank : ranks) {
    if (rank == settings_.rank) continue;
    out.push_back({.peer = rank, .bytes = {}});
    in.push_back({.peer = rank, .bytes = {}});
  }
  exchange({.collective = Collective::new_group}, out, in);
}

}  // namespace lockstep::comm
