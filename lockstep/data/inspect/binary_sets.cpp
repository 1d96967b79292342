#include <filesystem>

#include "lockstep/base/text.h"
#include "lockstep/data/inspect/kinds.h"
#include "lockstep/data/readers/cifar.h"
#include "lockstep/data/readers/idx.h"
#include "lockstep/data/readers/paths.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

// `path` or its folder `inner`: the first that has one of the files; "" when none has.
fs::path place_of(const std::string& path, const std::string& inner, const Names& names) {
  for (const fs::path& place : {fs::path(path), fs::path(path) / inner}) {
    for (const std::string& name : names) {
      if (is_there(place / name)) return place;
    }
  }
  return {};
}

Names with_gz(Names names) {
  const std::size_t count = names.size();
  for (std::size_t i = 0; i < count; ++i) names.push_back(names[i] + ".gz");
  return names;
}

std::uint64_t bytes_of(const fs::path& folder, const Names& names) {
  std::uint64_t sum = 0;
  for (const std::string& name : names) {
    std::error_code error;
    const auto bytes = fs::file_size(folder / name, error);
    if (!error) sum += bytes;
  }
  return sum;
}

void name_empty_classes(const fs::path& place, const SetPart& part, std::vector<Fault>& faults) {
  Names empty;
  for (const ClassCount& each : part.classes) {
    if (each.pictures == 0) empty.push_back(each.name);
  }
  if (empty.empty()) return;
  const std::string words = empty.size() > 1 ? "empty classes in " : "empty class in ";
  faults.push_back({place.string(), words + part.name + ": " + base::join(empty)});
}

// Adds what load() gives to the part, or what it throws to the faults.
template <class Load>
void add_loaded(const std::string& path, SetPart& part, std::vector<Fault>& faults, Load load) {
  try {
    add_pictures(load(), part);
  } catch (const std::exception& error) {
    faults.push_back(fault_from(error, path));
  }
}

}  // namespace

void add_pictures(const MemoryPictures& set, SetPart& part) {
  const MemoryPictures::Content& content = set.content();
  if (part.classes.empty()) {
    for (const std::string& name : set.classes()) part.classes.push_back({name, 0});
  }
  for (const std::int64_t label : content.labels) ++part.classes[std::size_t(label)].pictures;
  part.pictures += set.size();
  part.sizes[content.size] += set.size();
  part.kinds[content.channels == 1 ? "grey" : "RGB"] += set.size();
}

std::optional<Report> inspect_cifar10(const std::string& path) {
  const Names train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                       "data_batch_5.bin"};
  const Names test = {"test_batch.bin"};
  fs::path place = place_of(path, "cifar-10-batches-bin", train);
  if (place.empty()) place = place_of(path, "cifar-10-batches-bin", test);
  if (place.empty()) return std::nullopt;
  Report report{.path = path, .kind = "CIFAR-10 (binary)"};
  for (const auto& [name, files] : {std::pair("train", train), std::pair("test", test)}) {
    SetPart part{.name = name, .bytes = bytes_of(place, files)};
    for (const std::string& file : files) {
      const std::string full = (place / file).string();
      add_loaded(full, part, report.faults, [&] { return load_cifar10_file(full); });
    }
    name_empty_classes(place, part, report.faults);
    report.parts.push_back(std::move(part));
  }
  return report;
}

std::optional<Report> inspect_cifar100(const std::string& path) {
  const fs::path place = place_of(path, "cifar-100-binary", {"train.bin", "test.bin"});
  if (place.empty()) return std::nullopt;
  Report report{.path = path, .kind = "CIFAR-100 (binary), fine labels"};
  for (const Split split : {Split::train, Split::test}) {
    SetPart part{.name = split == Split::train ? "train" : "test"};
    part.bytes = bytes_of(place, {part.name + ".bin"});
    add_loaded(path, part, report.faults, [&] { return load_cifar100(path, split); });
    name_empty_classes(place, part, report.faults);
    report.parts.push_back(std::move(part));
  }
  return report;
}

std::optional<Report> inspect_mnist(const std::string& path) {
  const Names train = with_gz({"train-images-idx3-ubyte", "train-labels-idx1-ubyte"});
  const Names test = with_gz({"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"});
  for (const bool fashion : {false, true}) {
    const std::string inner = fashion ? "FashionMNIST/raw" : "MNIST/raw";
    fs::path place = place_of(path, inner, train);
    if (place.empty()) place = place_of(path, inner, test);
    if (place.empty()) continue;
    Report report{.path = path, .kind = fashion ? "Fashion-MNIST" : "MNIST, or a set in its format"};
    for (const Split split : {Split::train, Split::test}) {
      const bool is_train = split == Split::train;
      SetPart part{.name = is_train ? "train" : "test", .bytes = bytes_of(place, is_train ? train : test)};
      add_loaded(path, part, report.faults,
                 [&] { return fashion ? load_fashion_mnist(path, split) : load_mnist(path, split); });
      name_empty_classes(place, part, report.faults);
      report.parts.push_back(std::move(part));
    }
    return report;
  }
  return std::nullopt;
}

}  // namespace lockstep::data
