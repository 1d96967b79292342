// Any bytes are a picture or a UsageError of one line.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/codecs/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const lockstep::data::Image image = lockstep::data::decode({data, size}, "fuzz");
    if (image.channels() != 3 || image.height() < 1 || image.width() < 1) std::abort();
  } catch (const lockstep::UsageError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
