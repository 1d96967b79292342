#pragma once

// The connections between the ranks of a group, once each knows where the others listen: two between each pair, one for
// payload and one for news. Torch-free.

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/comm/network/door.h"
#include "lockstep/comm/network/words.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::comm {

struct MeshPeer {
  base::UniqueFd data, news;  ///< connected, never waiting; none to this rank itself
  std::string host;           ///< its machine's name
  int node = 0;
  int rank = 0;  ///< in the world: what failures call it
};

struct Mesh {
  std::vector<MeshPeer> peers;      ///< by rank
  rendezvous::SocketAddress own{};  ///< where this rank listened, without the port
};

/// Drawn at random.
Token new_token();
/// In hexadecimal figures.
std::string hex_of(const Token& token);

/// Where this rank listens for the others. UsageError, which calls the address `what`, when it cannot.
base::UniqueFd listener_at(int rank, const rendezvous::SocketAddress& address, const std::string& what);

/// Where the ranks of a group listen, by rank.
struct Roster {
  int rank = 0;  ///< this one
  Token token{};
  std::vector<rendezvous::SocketAddress> addresses;
  std::chrono::milliseconds timeout{};  ///< with which the patience began
};

/// Connects this rank, which listens at `listener`, with all others; called by all. `peers`: their hosts are there.
/// Error naming the ranks that did not come in time.
void connect_all(int listener, const Roster& roster, std::vector<MeshPeer>& peers, const Patience& patience);

}  // namespace lockstep::comm
