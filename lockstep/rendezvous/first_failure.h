#pragma once

// Which of the failures on several nodes was first: pure.

#include <string_view>
#include <vector>

namespace lockstep::rendezvous {

/// What is known of a failure, the surest cause first: who only followed another's does not get a signal from outside,
/// and says that a connection broke.
enum class FailureKind {
  node_lost,   ///< the whole node: its agent is gone or says nothing
  killed,      ///< by a signal from outside
  told,        ///< the worker has written why
  ended,       ///< it ended with an exit code, without a word
  connection,  ///< what it says is that somebody else's connection broke
};

struct NodeFailure {
  FailureKind kind = FailureKind::ended;
  double when = 0;   ///< by the hosting agent's clock, in seconds
  double error = 0;  ///< of `when`: half the time that a question to that clock took
};

/// Whether a worker's last words are those of a follower: its connection to another rank broke.
bool speaks_of_connection(std::string_view cause);

/// The index of the first failure: the earliest by the clock; where two are closer than their errors allow to tell, or
/// one followed from the other's (connection), the kind decides, then the time. `failures` is not empty.
std::size_t first_of(const std::vector<NodeFailure>& failures);

}  // namespace lockstep::rendezvous
