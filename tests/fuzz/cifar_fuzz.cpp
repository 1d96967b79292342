// Any bytes in a CIFAR file are a set or a UsageError; every sample of a set can be had.

#include <cstdint>
#include <string>

#include "lockstep/data/readers/cifar.h"
#include "tests/fuzz/accepted.h"
#include "tests/support/scratch_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const lockstep::testing::ScratchFolder folder;
  folder.write("test_batch.bin", std::string(reinterpret_cast<const char*>(data), size));
  lockstep::testing::accepted([&] {
    const lockstep::data::MemoryPictures set = lockstep::data::load_cifar10(folder.path(), false);
    for (std::int64_t i = 0; i < set.size(); ++i) copy_of(set.get(i).picture.window());
  });
  return 0;
}
