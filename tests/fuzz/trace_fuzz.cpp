// Any bytes are a rank's trace or a UsageError; what was read can be written, and then reads as the same text; and can
// be explained.

#include <cstdint>
#include <string>

#include "lockstep/trace/explain.h"
#include "tests/fuzz/accepted.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::trace;
  const std::string text(reinterpret_cast<const char*>(data), size);
  RankTrace trace;
  if (!lockstep::testing::accepted([&] { trace = parse_trace(text, "file"); })) return 0;
  const std::string again = format_trace(trace);
  if (format_trace(parse_trace(again, "file")) != again) std::abort();
  const Explanation found = explain({trace});
  if (explanation_text(found).empty() || explanation_json(found).empty()) std::abort();
  return 0;
}
