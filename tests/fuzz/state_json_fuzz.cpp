// Any bytes are a state.json or a UsageError; what was read can be written, and then reads as the same text.

#include <cstdint>
#include <string>

#include "lockstep/checkpoint/store/state_json.h"
#include "tests/fuzz/accepted.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::checkpoint;
  const std::string text(reinterpret_cast<const char*>(data), size);
  SavedState state;
  if (!lockstep::testing::accepted([&] { state = parse_state(text, "file"); })) return 0;
  const std::string again = format_state(state);
  if (format_state(parse_state(again, "file")) != again) std::abort();
  return 0;
}
