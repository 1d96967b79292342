// Any bytes in a CIFAR-10 or CIFAR-100 file are a set or a UsageError; every sample of a set can be had.

#include <cstdint>
#include <string>

#include "lockstep/data/readers/cifar.h"
#include "tests/fuzz/accepted.h"
#include "tests/support/scratch_folder.h"

namespace {

using namespace lockstep::data;

std::string names(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "name" + std::to_string(i) + "\n";
  return text;
}

struct Folder : lockstep::testing::ScratchFolder {
  Folder() {
    write("fine_label_names.txt", names(100));
    write("coarse_label_names.txt", names(20));
  }
};

template <class Load>
void take_all(Load load) {
  lockstep::testing::accepted([&] {
    const MemoryPictures set = load();
    for (std::int64_t i = 0; i < set.size(); ++i) copy_of(set.get(i).picture.window());
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  const std::string content(reinterpret_cast<const char*>(data), size);
  folder.write("test_batch.bin", content);
  folder.write("test.bin", content);
  take_all([] { return load_cifar10(folder.path(), Split::test); });
  for (const CifarLabels labels : {CifarLabels::fine, CifarLabels::coarse}) {
    take_all([&] { return load_cifar100(folder.path(), Split::test, labels); });
  }
  return 0;
}
