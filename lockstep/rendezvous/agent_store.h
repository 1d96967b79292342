#pragma once

// How a worker reaches the store of its job: through its own agent, over an abstract Unix socket that
// LOCKSTEP_AGENT_STORE names. One store for all nodes, on the hosting agent, and a new one for each generation: what
// the workers before a restart have left is not there any more, and a worker that outlives them reaches nobody. No port
// is opened, and between nodes all of it goes over the agents' connection, authenticated and enciphered where the job
// has a key (docs/design/rendezvous.md).
//
//   AgentStore store;
//   store.set("address/" + std::to_string(rank), my_address);
//   const std::string peers = store.get("address/0");  // waits until it is there

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/rendezvous/environment.h"
#include "lockstep/rendezvous/messages.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep::rendezvous {

inline constexpr const char* kAgentStoreVariable = "LOCKSTEP_AGENT_STORE";

/// The socket of this process's agent; empty: no agent with a store has started it (lockstep run does).
std::string agent_store_name(const GetEnv& get);
std::string agent_store_name();

/// Keys have at most kLongestKey bytes, values kLongestValue; both may hold any bytes. For one thread at a time:
/// another that waits at the same time takes an AgentStore of its own. Each call throws UsageError when a key or a
/// value is too long, and Error when it has no answer within its time (the message names a key that did not come), when
/// the store refuses (it is full; a number is added to what is none), and when the agent has gone or the generation is
/// over. Only after the last the object cannot be used again.
class AgentStore {
 public:
  using Time = std::chrono::milliseconds;

  /// Connects to the agent. `timeout` is that of each call that is given none. Throws UsageError where no agent has
  /// started this process, Error where it does not answer or is another user's.
  explicit AgentStore(Time timeout = std::chrono::minutes(5), const std::string& name = agent_store_name());

  void set(const std::string& key, const std::string& value);
  /// The value, when it is there.
  std::string get(const std::string& key, std::optional<Time> timeout = {});
  /// Until all of them are there. Of any number.
  void wait(const std::vector<std::string>& keys, std::optional<Time> timeout = {});
  /// Whether all of them are there now.
  bool check(const std::vector<std::string>& keys);
  /// Adds to the number that is there, 0 where none is, and returns the sum; the value is kept as decimal digits.
  std::int64_t add(const std::string& key, std::int64_t number);
  /// Appends to the value that is there, "" where none is, and returns its length.
  std::int64_t append(const std::string& key, const std::string& value);
  /// Sets `wanted` where `expected` is the value, or where it is "" and there is none. Returns the value that is there
  /// afterwards; where there is none still, `expected`.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& wanted);
  /// Whether it was there.
  bool delete_key(const std::string& key);
  /// Of any number, in as few messages as hold them. Others may see some of them earlier.
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values);
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, std::optional<Time> timeout = {});
  /// How many keys the store has.
  std::int64_t num_keys();
  /// Until `count` callers have come with this name; again and again with the same name and count. Who gives up has
  /// come all the same. Keeps two keys that begin with the name.
  void barrier(const std::string& name, int count, std::optional<Time> timeout = {});

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point deadline(std::optional<Time> timeout) const { return Clock::now() + timeout.value_or(timeout_); }
  StoreAnswer ask(StoreAsk ask, Clock::time_point deadline);
  void send(const Message& message, Clock::time_point deadline);
  bool receive(Clock::time_point deadline);

  const Time timeout_;
  base::UniqueFd socket_;
  std::string received_;
  std::int64_t last_id_ = 0;
};

}  // namespace lockstep::rendezvous
