#pragma once

// Messages between two ranks, as whoever moves them sees them: bytes. What makes them of tensors is point_to_point.h.

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/comm/collective_note.h"

namespace lockstep::comm {

enum class Way { send, recv };

struct Message {
  Way way = Way::send;
  int peer = 0;                ///< its rank in the group
  std::span<std::byte> bytes;  ///< of a send only read
  CollectiveNote note;         ///< what this rank calls
};

/// What a rank has to send and to receive, as it comes. Between two ranks messages go in the order in which each has
/// begun with them.
class Messages {
 public:
  virtual ~Messages() = default;
  /// The next one to begin with, which stays where it is until it was moved; null: there is none now. Whoever moves
  /// messages asks again in all of its waits, every 10 ms at least, as long as any is under way. What it throws ends
  /// the group.
  virtual Message* next() = 0;
  /// It has been sent or received.
  virtual void moved(Message& message) = 0;
};

/// Those of a list, all at the same time.
class ListedMessages final : public Messages {
 public:
  explicit ListedMessages(std::vector<Message> list) : list_(std::move(list)) {}
  Message* next() override { return begun_ < list_.size() ? &list_[begun_++] : nullptr; }
  void moved(Message&) override {}

 private:
  std::vector<Message> list_;
  std::size_t begun_ = 0;
};

}  // namespace lockstep::comm
