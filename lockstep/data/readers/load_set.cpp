#include "lockstep/data/readers/load_set.h"

#include "lockstep/base/error.h"
#include "lockstep/data/digits.h"
#include "lockstep/data/readers/cifar.h"
#include "lockstep/data/readers/idx.h"

namespace lockstep::data {

MemoryPictures load_set(const KnownSet& set, const std::string& path, Split split) {
  switch (set.files) {
    case SetFiles::none:
      return make_digits(split);
    case SetFiles::idx:
      return load_idx_set(set, path, split);
    case SetFiles::cifar10:
      return load_cifar10(path, split);
    case SetFiles::cifar100:
      return load_cifar100(path, split);
    case SetFiles::cifar100_coarse:
      return load_cifar100(path, split, CifarLabels::coarse);
    case SetFiles::class_folders:
    case SetFiles::annotated:
      break;
    case SetFiles::own_pictures:
    case SetFiles::own_samples:
    case SetFiles::own_numbers:
      throw UsageError("'" + set.name + "' is a program's own set");
    case SetFiles::line:
    case SetFiles::table:
      throw UsageError("'" + set.name + "' holds numbers, not pictures");
  }
  throw UsageError("'" + set.name + "' is not read into memory: " +
                   (set.files == SetFiles::annotated ? "AnnotatedPictures" : "ImageFolder") +
                   " reads it picture by picture");
}

MemoryPictures load_set(const std::string& name, const std::string& path, Split split) {
  return load_set(find_set(name), path, split);
}

std::vector<std::string> file_names(SetFiles files, Split split) {
  const bool train = split == Split::train;
  switch (files) {
    case SetFiles::idx:
      return idx_file_names(split);
    case SetFiles::cifar10:
      return cifar10_file_names(split);
    case SetFiles::cifar100:
    case SetFiles::cifar100_coarse:
      return {train ? "train.bin" : "test.bin"};
    case SetFiles::none:
    case SetFiles::line:
    case SetFiles::table:
    case SetFiles::class_folders:
    case SetFiles::annotated:
    case SetFiles::own_pictures:
    case SetFiles::own_samples:
    case SetFiles::own_numbers:
      break;
  }
  return {};
}

}  // namespace lockstep::data
