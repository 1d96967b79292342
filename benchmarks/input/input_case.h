#pragma once

// What is measured: a set of pictures and how they become batches.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/picture_batches.h"

namespace lockstep::bench {

/// What the flags ask for.
struct InputOptions {
  std::string data_path;   ///< an ImageFolder, or a folder with MNIST's files; empty: pictures made up
  std::string transforms;  ///< cifar, photos or mnist; empty: by what the set holds
  bool in_memory = false;  ///< pictures are decoded before the measurement
  int workers = 2;
  int batch_size = 128;
};

struct InputCase {
  std::string kind;        ///< folder, memory or mnist: the peer's word for where the pixels come from
  std::string transforms;  ///< cifar, photos or mnist
  std::string about;       ///< the set in words
  std::vector<double> mean, std;
  std::shared_ptr<const data::PictureSet> set;
};

/// Opens the set. UsageError as of the readers, and for transforms that do not exist.
InputCase open_case(const InputOptions& options);

/// cifar: RandomCrop(32, padding 4), RandomHorizontalFlip; photos: RandomResizedCrop(224),
/// RandomHorizontalFlip; mnist: nothing.
data::Compose transforms_of(const std::string& name);

/// These transforms, then ToTensor and Normalize.
std::shared_ptr<const data::PictureBatches> batches_of(const InputCase& input);

}  // namespace lockstep::bench
