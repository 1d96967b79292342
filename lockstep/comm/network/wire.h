#pragma once

// What carries bytes between ranks that share no memory. Collectives over a network (network_group.h) and the exchange
// of a training step are written once over it.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/comm/collective_note.h"
#include "lockstep/comm/messages.h"

namespace lockstep::comm {

/// Bytes for a peer, named by its rank in the world.
struct Outgoing {
  int peer = 0;
  std::span<const std::byte> bytes;
};

/// Room for those of a peer: exactly as many as it sends.
struct Incoming {
  int peer = 0;
  std::span<std::byte> bytes;
};

/// Belongs to one rank and is used by one thread at a time, but for abort().
class Wire {
 public:
  virtual ~Wire() = default;

  /// Moves messages at the same time, in whatever order they can be moved; between two ranks, in the order in which
  /// they come. Returns when everything is received, and sent as far as the caller is concerned, and nothing more has
  /// come. A message of no bytes is one, too. Error on the receiver, and the end of the group, when a peer's note or
  /// number of bytes is another; the sender hears of it in a wait. GroupAborted when a peer has failed, died or left,
  /// when this rank's node has failed, when the machine of a peer that is waited for does not answer any more, or when
  /// nothing has moved for the group's timeout: then it is the failure of the one that is late, or, where several are,
  /// of this rank.
  virtual void carry(Messages& messages) = 0;

  /// The same for messages that are all there, of one collective.
  void exchange(const CollectiveNote& note, std::span<const Outgoing> out, std::span<const Incoming> in);

  /// Tells all peers that this rank cannot go on, and why: their waits end. Waits for nobody. Any thread.
  virtual void abort(const Failure& failure) = 0;

  /// How long carry() waits while nothing moves. Any thread.
  virtual std::chrono::milliseconds timeout() const = 0;

  /// Of messages to peers so far, without what the wire adds. By the thread that exchanges.
  virtual std::uint64_t bytes_sent() const = 0;
};

}  // namespace lockstep::comm
