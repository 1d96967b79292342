// What comes from the network to an agent: bytes in pieces become messages or an error, and what was read is written
// alike. The first byte says who sends them: a stranger, or one that may send more.

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/rendezvous/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::rendezvous;
  if (size == 0) return 0;
  const std::size_t longest = data[0] % 2 == 0 ? kLongestFromStranger : kLongestMessage;
  std::string waiting(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    for (std::size_t before = waiting.size();; before = waiting.size()) {
      const std::string bytes = waiting;
      const auto message = take_message(waiting, longest);
      if (!message) break;
      if (waiting.size() >= before || bytes != to_frame(*message) + waiting) __builtin_trap();
    }
  } catch (const BadFrame&) {
  }
  return 0;
}
