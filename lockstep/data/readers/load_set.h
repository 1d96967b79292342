#pragma once

// The sets that have a name (sets/known_sets.h), read into memory.

#include <string>
#include <vector>

#include "lockstep/data/picture_set.h"
#include "lockstep/data/sets/known_sets.h"
#include "lockstep/data/split.h"

namespace lockstep::data {

/// A part of the set from the folder `path` or its set.folder:
///
///   auto train = data::load_set("fashion-mnist", "data/fashion-mnist", data::Split::train);
///
/// UsageError as of load_mnist() and load_cifar10(); for an unknown name; for class folders, which ImageFolder reads
/// picture by picture.
MemoryPictures load_set(const KnownSet& set, const std::string& path, Split split);
MemoryPictures load_set(const std::string& name, const std::string& path, Split split);

/// The names under which its readers look for such files; none of what is drawn or in class folders.
std::vector<std::string> file_names(SetFiles files, Split split);

}  // namespace lockstep::data
