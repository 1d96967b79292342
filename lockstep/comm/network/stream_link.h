#pragma once

// What a StreamWire keeps of each peer.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/network/frame.h"
#include "lockstep/comm/network/stream_wire.h"
#include "lockstep/comm/network/words.h"

namespace lockstep::comm {

// The traffic with one peer: messages wait in the order in which they were named.
struct StreamWire::Link {
  std::deque<Message*> out, in;
  Frame outgoing, incoming;  // of the first ones
  std::uint64_t messages_out = 0, messages_in = 0;
  std::array<std::byte, sizeof(News)> news{};  // as much of it as has come
  std::size_t heard = 0;
  Clock::time_point news_end{};
  bool has_left = false;
  bool has_come = false;                   // a message, in this exchange
  CollectiveNote said;                     // with the last message that has begun to come,
  std::uint64_t said_in = 0;               // in which step
  std::string cut;                         // how the way to it was lost: it may live, and not know
  bool asks = false;                       // whom this rank waits for
  bool was_asked = false;                  // the same
  std::optional<std::vector<int>> awaits;  // what it has answered: ranks by their names

  bool is_owed() const { return !in.empty() || !out.empty(); }
  const Message& first() const { return in.empty() ? *out.front() : *in.front(); }
};

}  // namespace lockstep::comm
