// Any bytes are a manifest or a UsageError. What was read is what is written again. The hash in the last line would let
// nothing through, so the lines get theirs when the first byte says so.

#include <cstdint>
#include <string>

#include "lockstep/checkpoint/store/digest.h"
#include "lockstep/checkpoint/store/manifest.h"
#include "tests/fuzz/accepted.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::checkpoint;
  if (size == 0) return 0;
  std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] & 1) text += "end " + digest_of(text) + "\n";
  Manifest manifest;
  if (!lockstep::testing::accepted([&] { manifest = parse_manifest(text, "file"); })) return 0;
  if (parse_manifest(format_manifest(manifest), "file") != manifest) std::abort();
  return 0;
}
