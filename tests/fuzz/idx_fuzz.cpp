// Any bytes, plain or as gzip, are an IDX file or a UsageError; its bytes are all there. The first byte of the input
// says how to read the rest: bit 0 gzip, the others the number of dimensions.

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "lockstep/data/readers/idx.h"
#include "tests/fuzz/accepted.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  using namespace lockstep::data;
  std::unique_ptr<ByteSource> source = memory_bytes({data + 1, size - 1}, "fuzz");
  if (data[0] & 1) source = gunzip(std::move(source));
  lockstep::testing::accepted([&] {
    const IdxBytes content = read_idx(*source, 1 + (data[0] >> 1) % 4);
    std::uint64_t product = 1;
    for (const std::int64_t one : content.shape) product *= std::uint64_t(one);
    if (product != content.bytes.size()) std::abort();
  });
  return 0;
}
