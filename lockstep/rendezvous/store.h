#pragma once

// The store by which the workers of one generation meet: keys and byte strings, with what c10d's Store offers. A pure
// state machine: no clock, no socket. Who waits does so until a key comes, or until he says that he does not any more;
// deadlines are his (agent_store.h).

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/limits.h"
#include "lockstep/rendezvous/messages.h"

namespace lockstep::rendezvous {

/// What can be asked: StoreAsk::what, and what it takes and gives. Nothing else is given.
enum class StoreCall : std::int64_t {
  set,          ///< keys and as many values
  get,          ///< keys, waits for all; gives the values of the first ones, as many as an answer holds
  wait,         ///< keys, waits for all
  check,        ///< keys; gives how many of them are there
  add,          ///< one key, a number; gives the sum, which is kept as decimal digits. A key that is not there is 0
  append,       ///< one key, one value; gives the new length
  compare_set,  ///< one key, what is expected and what is wanted; gives the value that is there afterwards. A key that
                ///< is not there is set where nothing ("") is expected; else what was expected is given
  delete_key,   ///< one key; gives 1 or, where it was not there, 0
  num_keys,     ///< gives how many there are
};

inline constexpr std::size_t kLongestKey = 1024;
inline constexpr std::size_t kLongestValue = 32 * 1024;
/// Of one ask or answer: how many keys, and how long keys and values may be together.
inline constexpr std::size_t kMostKeysAtOnce = 1000;
inline constexpr std::size_t kMostBytesAtOnce = 48 * 1024;
/// Of the store: keys, and bytes of keys, values and asks that wait.
inline constexpr std::size_t kMostKeys = 200'000;
inline constexpr std::size_t kMostStoreBytes = 256 << 20;
/// Asks of one client, which is a node with all its workers, that wait.
inline constexpr std::size_t kMostWaiting = 2 * base::kMaxLocalRanks;

class Store {
 public:
  struct Reply {
    std::uint64_t client = 0;
    StoreAnswer answer;
  };

  /// Gives the answers that are due: to this ask, unless it has to wait, and to those that have waited for it. An ask
  /// that makes no sense or is over a limit is answered with the reason and changes nothing; where several keys are
  /// set, those before the one that finds the store full stay set.
  std::vector<Reply> ask(std::uint64_t client, const StoreAsk& ask);
  /// The client does not wait for that answer any more.
  void forget(std::uint64_t client, std::int64_t id);
  /// The client has gone.
  void leave(std::uint64_t client);

 private:
  using Name = std::pair<std::uint64_t, std::int64_t>;  // client and id
  struct Waiter {
    StoreAsk ask;
    std::size_t missing = 0;  // which of its keys it waits for now
  };

  StoreAnswer change(const StoreAsk& ask);
  void add(const StoreAsk& ask, StoreAnswer& answer);
  void compare_set(const StoreAsk& ask, StoreAnswer& answer);
  bool put(const std::string& key, std::string value, StoreAnswer& answer);
  void wait(const Name& name, const StoreAsk& ask, std::vector<Reply>& replies);
  void wake(const std::string& key, std::vector<Reply>& replies);
  std::size_t missing_key(const std::vector<std::string>& keys, std::size_t from) const;
  StoreAnswer give(const StoreAsk& ask) const;
  void end_wait(std::map<Name, Waiter>::iterator waiter);

  std::unordered_map<std::string, std::string> values_;
  std::map<Name, Waiter> waiters_;
  std::multimap<std::string, Name> waiting_for_;  // each waiter once, under the key that it misses
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::rendezvous
