#pragma once

// Moves messages between two ranks of a node, without the others: the sender copies into its half, a chunk ahead of the
// receiver, who copies out. So a message of any size needs no memory of its own.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "lockstep/base/member.h"
#include "lockstep/comm/messages.h"
#include "lockstep/comm/shm/staging.h"

namespace lockstep::comm {

/// For the length of one Group::carry().
class Courier {
 public:
  /// `half`: of this rank's, the one that its next collective uses.
  Courier(base::Member& member, const Staging& staging, int half, Messages& messages);

  /// Group::carry(). A message counts as sent when the peer has all of it.
  void run();

 private:
  /// The messages to a peer, or from it, in order.
  struct Queue {
    std::deque<Message*> messages;
    std::size_t bytes = 0;     ///< of the first one, copied so far
    std::uint64_t chunks = 0;  ///< of the first one
    bool is_copied() const { return chunks > 0 && bytes == messages.front()->bytes.size(); }
  };

  bool begin();
  bool move();
  bool move_out(int peer);
  bool move_in(int peer);
  void finish(Queue& queue);
  void check_note(int peer, const CollectiveNote& theirs);
  bool is_owed(int peer) const;
  bool is_idle() const;
  std::string first_of_all() const;
  std::uint64_t count(const std::atomic<base::Mark>& word) const;
  void set(std::atomic<base::Mark>& word, std::uint64_t count) const;
  std::byte* chunk(int rank, int half, int to, std::uint64_t number) const;

  base::Member& member_;
  const Staging& staging_;
  const int half_;
  Messages& messages_;
  const std::size_t chunk_;      ///< bytes
  std::vector<Queue> out_, in_;  ///< by rank
};

}  // namespace lockstep::comm
