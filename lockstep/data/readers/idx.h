#pragma once

// The IDX format of MNIST: big-endian magic 00 00 08 <dimensions>, one 32-bit size per
// dimension, then unsigned bytes, the last dimension fastest.

#include <string>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

/// Reads an IDX file of unsigned bytes with `dimensions` dimensions (.gz: unpacked) into a
/// uint8 tensor of its shape. UsageError naming file and offset when it is missing, has
/// another magic number, ends early, has bytes after its end or is damaged gzip. The declared
/// size is checked against the file before memory is taken.
at::Tensor read_idx(const std::string& path, int dimensions);

/// MNIST (or a set in its format: 28x28 grey, 10 classes) from the folder `path` or its
/// MNIST/raw (where torchvision puts it): train-images-idx3-ubyte, train-labels-idx1-ubyte,
/// t10k-…, each plain or .gz. UsageError as above; also when no such file is there, when
/// images and labels differ in number, and for a label above 9.
ImageSet load_mnist(const std::string& path, bool train);

}  // namespace lockstep::data
