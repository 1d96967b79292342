#pragma once

// What a StreamWire keeps of each peer, and what it says last.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "lockstep/comm/network/frame.h"
#include "lockstep/comm/network/stream_wire.h"

namespace lockstep::comm {

inline constexpr std::uint64_t kWireMagic = 0x4c4b776972653032;  // "LKwire02"

// What a rank says last.
struct StreamWire::News {
  std::uint64_t magic = kWireMagic;
  std::int32_t rank = -1;  // who failed; of one that leaves itself
  std::int32_t exit_code = 0;
  std::uint64_t step = 0;
  std::uint32_t left = 0;  // 1: no failure
  std::uint32_t length = 0;
  char phase[32] = {};
  char cause[1024] = {};
};

// The traffic with one peer: messages wait in the order in which they were named.
struct StreamWire::Link {
  std::deque<Message*> out, in;
  Frame outgoing, incoming;  // of the first ones
  std::uint64_t messages_out = 0, messages_in = 0;
  std::array<std::byte, sizeof(News)> news{};  // as much of it as has come
  std::size_t heard = 0;
  Clock::time_point news_end{};
  bool has_left = false;
  bool has_come = false;  // a message, in this exchange
  std::string cut;        // how the way to it was lost: it may live, and not know

  bool is_owed() const { return !in.empty() || !out.empty(); }
  const Message& first() const { return in.empty() ? *out.front() : *in.front(); }
};

}  // namespace lockstep::comm
