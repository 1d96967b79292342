#include "lockstep/comm/network/wire.h"

#include <utility>
#include <vector>

namespace lockstep::comm {

void Wire::exchange(const CollectiveNote& note, std::span<const Outgoing> out, std::span<const Incoming> in) {
  std::vector<Message> messages;
  messages.reserve(out.size() + in.size());
  // What is sent is read alone.
  for (const auto& [peer, bytes] : out)
    messages.push_back(
        {.way = Way::send, .peer = peer, .bytes = {const_cast<std::byte*>(bytes.data()), bytes.size()}, .note = note});
  for (const auto& [peer, bytes] : in)
    messages.push_back({.way = Way::recv, .peer = peer, .bytes = bytes, .note = note});
  ListedMessages listed(std::move(messages));
  carry(listed);
}

}  // namespace lockstep::comm
