#pragma once

// The binary versions of CIFAR-10 and CIFAR-100: records of one or two label bytes and a 32x32 picture,
// its red, green and blue planes one behind the other.

#include <string>
#include <vector>

#include "lockstep/data/picture_set.h"
#include "lockstep/data/split.h"

namespace lockstep::data {

/// CIFAR-10 from the folder `path` or its cifar-10-batches-bin: data_batch_1.bin … data_batch_5.bin, or
/// test_batch.bin. UsageError naming the file, and the offset where there is one: a file is missing,
/// empty, no whole number of records long, or longer than 50,000 of them (refused before it is read); a label is
/// above 9.
MemoryPictures load_cifar10(const std::string& path, Split split);

/// The names of these files.
std::vector<std::string> cifar10_file_names(Split split);

/// One file of CIFAR-10 alone. UsageError as above.
MemoryPictures load_cifar10_file(const std::string& file);

/// Which of the two labels of CIFAR-100.
enum class CifarLabels {
  fine,    ///< 100 classes
  coarse,  ///< 20 groups of them
};

/// CIFAR-100 from the folder `path` or its cifar-100-binary: train.bin or test.bin, and the names in
/// fine_label_names.txt or coarse_label_names.txt, one a line. UsageError as above, and when the
/// names are not 100 or 20.
MemoryPictures load_cifar100(const std::string& path, Split split, CifarLabels labels = CifarLabels::fine);

}  // namespace lockstep::data
