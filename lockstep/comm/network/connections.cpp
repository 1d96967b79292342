#include "lockstep/comm/network/connections.h"

#include <sys/random.h>

#include <cstring>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

void connect_lower(const Roster& roster, std::vector<MeshPeer>& peers, const Patience& patience) {
  for (int peer = 0; peer < roster.rank; ++peer)
    for (const bool news : {false, true}) {
      base::UniqueFd fd = connect_by(roster.addresses[std::size_t(peer)], patience);
      const Greeting greeting{.token = roster.token, .rank = roster.rank, .news = news};
      if (!fd || !write_all(fd.get(), &greeting, sizeof greeting, patience))
        throw Error("group: rank " + std::to_string(peers[std::size_t(roster.rank)].rank) + " cannot reach rank " +
                    std::to_string(peers[std::size_t(peer)].rank) + " (" + peers[std::size_t(peer)].host +
                    "), whose ports may be closed to it");
      (news ? peers[std::size_t(peer)].news : peers[std::size_t(peer)].data) = std::move(fd);
    }
}

void await_higher(int listener, const Roster& roster, std::vector<MeshPeer>& peers, const Patience& patience) {
  Door<Greeting> door(listener);
  const int world = int(peers.size());
  for (int left = 2 * (world - 1 - roster.rank); left > 0;) {
    auto came = door.next(patience);
    if (!came) {
      std::string late;
      for (std::size_t peer = std::size_t(roster.rank) + 1; peer < peers.size(); ++peer)
        if (!peers[peer].data || !peers[peer].news)
          late += (late.empty() ? "" : ", ") + std::to_string(peers[peer].rank);
      throw Error("group: these ranks did not connect to rank " + std::to_string(peers[std::size_t(roster.rank)].rank) +
                  " within " + std::to_string(roster.timeout.count() / 1000) + " s: " + late);
    }
    auto& [fd, greeting] = *came;
    if (greeting.token != roster.token || greeting.rank <= roster.rank || greeting.rank >= world) continue;
    MeshPeer& peer = peers[std::size_t(greeting.rank)];
    base::UniqueFd& place_of = greeting.news != 0 ? peer.news : peer.data;
    if (place_of) continue;
    place_of = std::move(fd);
    --left;
  }
}

}  // namespace

base::UniqueFd listener_at(int rank, const rendezvous::SocketAddress& address, const std::string& what) {
  rendezvous::Listening listening = rendezvous::listen_at(address);
  if (listening.fd) return std::move(listening.fd);
  throw UsageError("group: rank " + std::to_string(rank) + " cannot listen at " + what + ": " +
                   std::strerror(listening.error));
}

Token new_token() {
  Token token{};
  if (getrandom(token.data(), token.size(), 0) != ssize_t(token.size())) throw_errno("group: getrandom");
  return token;
}

std::string hex_of(const Token& token) {
  std::string text;
  for (const unsigned char byte : token) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

void connect_all(int listener, const Roster& roster, std::vector<MeshPeer>& peers, const Patience& patience) {
  connect_lower(roster, peers, patience);
  await_higher(listener, roster, peers, patience);
}

}  // namespace lockstep::comm
