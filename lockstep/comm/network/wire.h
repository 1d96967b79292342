#pragma once

// What carries bytes between ranks that share no memory. Collectives over a network (network_group.h) and the exchange
// of a training step are written once over it.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/collective_note.h"
#include "lockstep/comm/messages.h"

namespace lockstep::comm {

/// Bytes for a peer, named by its rank in the group.
struct Outgoing {
  int peer = 0;
  std::span<const std::byte> bytes;
};

/// Room for those of a peer: exactly as many as it sends.
struct Incoming {
  int peer = 0;
  std::span<std::byte> bytes;
};

/// What a wire has of its rank's node.
struct WireTies {
  /// A wait in which nothing moves for longer is told on standard error, once in an exchange: of a message by whoever
  /// waits for it, of what all come to by the lowest of a node's ranks that waits. 0: never.
  std::chrono::milliseconds stall_warning{0};
  /// Whether what a peer calls is compared with what this rank calls. The bytes of a message always are.
  bool check_calls = true;
  /// The step that this rank is in, for what is said of waits; 0: in none.
  std::function<std::uint64_t()> step = [] { return 0; };
  /// Throws when this rank's node has failed; called in every wait.
  std::function<void()> check = [] {};
  /// Tells this rank's node of a failure that came over the wire or was met there.
  std::function<void(const Failure&)> failed = [](const Failure&) {};
  /// Tells this rank's node that it begins (1) or ends (-1) what it may wait for other nodes in.
  std::function<void(int change)> away = [](int) {};
  /// Whether the rank of this node in that seat is in something of the kind.
  std::function<bool(int seat)> is_away = [](int) { return false; };
  /// Where the rank of this node in that seat is in its step, in words; empty: it is not known.
  std::function<std::string(int seat)> place_of = [](int) { return std::string(); };
  /// Has that rank write its stack; false where it does not. Waits for nobody.
  std::function<bool(int seat)> ask_where = [](int) { return false; };
};

/// Belongs to one rank and is used by one thread at a time, but for what is said to be for any.
class Wire {
 public:
  virtual ~Wire() = default;

  /// Moves messages at the same time, in whatever order they can be moved; between two ranks, in the order in which
  /// they come. Returns when everything is received, and sent as far as the caller is concerned, and nothing more has
  /// come. A message of no bytes is one, too. Error on the receiver, and the end of the group, when a peer's note or
  /// number of bytes is another; the sender hears of it in a wait. GroupAborted when a peer has failed, died or left,
  /// when this rank's node has failed, when the machine of a peer that is waited for does not answer any more, or when
  /// nothing has moved for the group's timeout (and up to a fifteenth more, 600 ms at least, in which those that are
  /// late are asked for whom they wait themselves): then it is the failure of the one that waits for nobody. Where such
  /// are several it is this rank's, and where nobody is, that of the only one that is late, or this rank's.
  virtual void carry(Messages& messages) = 0;

  /// The same for messages that are all there, of one collective.
  void exchange(const CollectiveNote& note, std::span<const Outgoing> out, std::span<const Incoming> in);

  /// A wire of these of its ranks, rising, which are then 0, 1, ... in it; failures call them what this one's call
  /// them. Called by each of them, and by nobody else, as a collective is. Errors as of carry(); Error naming the ranks
  /// that could not be reached.
  virtual std::unique_ptr<Wire> part(const std::vector<int>& ranks, WireTies ties) = 0;

  /// What failures call a rank: its number in the world. Any thread.
  virtual int name_of(int rank) const = 0;

  /// Tells this rank's node of the failures of which peers have told. Waits for nobody. Any thread.
  virtual void listen() = 0;

  /// Tells the peers whose time for this rank is over, and who ask, whom it waits for itself: `awaited` gives their
  /// names. carry() does so in its waits; who waits elsewhere, and would use this wire next, calls it there, each 10 ms
  /// or so. Waits for nobody.
  virtual void answer(const std::function<std::vector<int>()>& awaited) = 0;

  /// Tells all peers that this rank cannot go on, and why: their waits end. Waits for nobody. Any thread.
  virtual void abort(const Failure& failure) = 0;

  /// How long carry() waits while nothing moves. Any thread.
  virtual std::chrono::milliseconds timeout() const = 0;

  /// Of messages to peers so far, without what the wire adds. By the thread that exchanges.
  virtual std::uint64_t bytes_sent() const = 0;
};

}  // namespace lockstep::comm
