// What comes from the network to an agent: bytes in pieces become messages or an error, and what was read is written
// alike.

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/rendezvous/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::rendezvous;
  std::string waiting(reinterpret_cast<const char*>(data), size);
  try {
    for (std::size_t before = waiting.size();; before = waiting.size()) {
      const std::string bytes = waiting;
      const auto message = take_message(waiting, kLongestFromStranger);
      if (!message) break;
      if (waiting.size() >= before || bytes != to_frame(*message) + waiting) __builtin_trap();
    }
  } catch (const BadFrame&) {
  }
  return 0;
}
