#pragma once

// The IDX format of MNIST: big-endian magic 00 00 08 <dimensions>, one 32-bit size per
// dimension, then unsigned bytes, the last dimension fastest.

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/picture_set.h"
#include "lockstep/data/readers/byte_source.h"
#include "lockstep/data/sets/known_sets.h"
#include "lockstep/data/split.h"

namespace lockstep::data {

/// Unsigned bytes of some shape, the last dimension fastest.
struct IdxBytes {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};

/// Reads an IDX file of unsigned bytes with `dimensions` dimensions (.gz: unpacked). UsageError naming file and offset
/// when it is missing, has another magic number, ends early, has bytes after its end or is damaged gzip. The declared
/// size is checked against the file before memory is taken.
IdxBytes read_idx(const std::string& path, int dimensions);

/// The same of bytes from anywhere.
IdxBytes read_idx(ByteSource& source, int dimensions);

/// MNIST from the folder `path` or its MNIST/raw (where torchvision puts it): train-images-idx3-ubyte,
/// train-labels-idx1-ubyte, t10k-…, each plain or .gz. UsageError as above; also when no such file is there, when
/// images and labels differ in number, and for a label above 9.
MemoryPictures load_mnist(const std::string& path, Split split);

/// Fashion-MNIST, in the same files, from the folder `path` or its FashionMNIST/raw; its classes have names.
MemoryPictures load_fashion_mnist(const std::string& path, Split split);

/// Any set of grey pictures in such files, from the folder `path` or its set.folder. UsageError as above; pictures and
/// labels are held against set.task and set.class_names.
MemoryPictures load_idx_set(const KnownSet& set, const std::string& path, Split split);

/// The names that are looked for: pictures and labels, plain, then packed.
std::vector<std::string> idx_file_names(Split split);

}  // namespace lockstep::data
