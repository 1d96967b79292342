#pragma once

// Where the ranks of several nodes learn rank 0's address when it is not MASTER_ADDR:MASTER_PORT itself: a store that
// the launcher's agents keep, or the program itself. Torch-free.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/rendezvous/environment.h"

namespace lockstep::comm {

/// Belongs to one thread. Every call throws Error when the store is gone.
class Meeting {
 public:
  virtual ~Meeting() = default;
  /// Puts it there, in the place of what is there.
  virtual void publish(const std::string& key, const std::string& value) = 0;
  /// What is there now; does not wait for it. It may be a dead rank's, of an attempt before.
  virtual std::optional<std::string> look_up(const std::string& key) = 0;
  /// Whether it often is: one attempt after another has this store. Then look_up() may be called while another rank
  /// takes away what is there.
  virtual bool outlives_attempts() const { return false; }
  /// Takes it away.
  virtual void withdraw(const std::string& key) = 0;
  /// For messages: "torchrun's store at 10.0.0.1:29500".
  virtual std::string name() const = 0;
};

/// The launcher's store: our agents' (LOCKSTEP_AGENT_STORE), else that of torchrun's agents, who listen at MASTER_PORT
/// themselves when TORCHELASTIC_USE_AGENT_STORE is True. Null: there is none, and rank 0 can listen there. Waits until
/// the store answers; Error when it does not in time.
std::unique_ptr<Meeting> meeting_of(const rendezvous::Place& place, std::chrono::milliseconds timeout);

}  // namespace lockstep::comm
