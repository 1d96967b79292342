// Any bytes are a picture or a UsageError of one line.

#include <cstdint>
#include <cstdlib>

#include "lockstep/data/codecs/decode.h"
#include "tests/fuzz/accepted.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::testing::accepted([&] {
    const lockstep::data::Image image = lockstep::data::decode({data, size}, "fuzz");
    if (image.channels() != 3 || image.height() < 1 || image.width() < 1) std::abort();
  });
  return 0;
}
