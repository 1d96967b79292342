#pragma once

// What a StreamWire's payload goes through: bytes to each peer and from it, in order, in pieces of whatever size.

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/network/connections.h"

namespace lockstep::comm {

/// What became of a try to move bytes. None, and nothing else said: it would have to wait.
struct Moved {
  std::size_t bytes = 0;
  bool ended = false;  ///< the peer sends nothing more
  std::string error;   ///< why the way is lost; empty: it is not
};

/// Whether what was sent goes on its way without this rank's help.
struct Sent {
  bool done = false;
  std::string error;  ///< as of Moved
};

/// Peers are named by their ranks in the group. Used by one thread at a time; nothing here waits.
class Streams {
 public:
  virtual ~Streams() = default;
  virtual Moved send(int peer, std::span<const iovec> pieces) = 0;
  virtual Moved receive(int peer, std::span<const iovec> pieces) = 0;
  /// Of all that send() has taken.
  virtual Sent sent(int peer) = 0;
  /// A descriptor that poll() tells of; -1: none.
  virtual int polled(int peer) const = 0;
  /// How long a wait may sleep that has seen nothing move for `idle`.
  virtual std::chrono::nanoseconds nap(std::chrono::nanoseconds idle) const = 0;
  /// Whether a peer that has died is known by its news connection alone.
  virtual bool end_with_news() const = 0;
  /// The group has failed. Any thread.
  virtual void give_up() {}
  /// What this rank tells the others of a part; the highest that any has told is what its streams are made of.
  virtual std::int64_t offer() const { return 0; }
  /// Those of a part of this group, which is connected.
  virtual std::unique_ptr<Streams> part(Mesh& mesh, std::int64_t highest) = 0;
};

/// Takes the payload's connections of a mesh.
std::unique_ptr<Streams> tcp_streams(Mesh& mesh);

}  // namespace lockstep::comm
