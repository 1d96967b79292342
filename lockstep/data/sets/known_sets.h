#pragma once

// The data sets that have a name: a row for each, which all ask that need to know about one — the flags of the
// programs, the readers, downloads, `lockstep data inspect`. Without libtorch and without decoders, because the flags
// of `lockstep` are checked in a millisecond. Another set in files of a kind that is read already is another row.
// Pure functions, thread-safe.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

/// What the files of a set are, which says who reads them (readers/load_set.h).
enum class SetFiles {
  none,      ///< the set is drawn
  line,      ///< so is this one: numbers, and a linear function of them (readers/number_sets.h)
  table,     ///< a CSV file of numbers, or one for each part
  idx,       ///< the four files of MNIST
  cifar10,   ///< the binary version of CIFAR-10
  cifar100,  ///< that of CIFAR-100, by its fine labels
  cifar100_coarse,
  class_folders,  ///< pictures in a folder per class, in train and in val or test
  annotated,      ///< pictures by a CSV file of paths and labels for each part
  own_pictures,   ///< pictures that a program makes or reads itself (train/additions.h)
  own_samples,    ///< its tensors, with a class for each sample
  own_numbers,    ///< its tensors, with numbers to be regressed
};

/// What a model for the set is made for. All 0 but the channels where only the pictures tell.
struct SetTask {
  std::int64_t channels = 3;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t classes = 0;
};

/// A file to download.
struct RemoteFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string sha256;  ///< lower-case hexadecimal
};

struct KnownSet {
  std::string name;  ///< what --dataset and `lockstep data fetch` call it
  SetFiles files = SetFiles::none;
  SetTask task = {};
  std::string transforms;                     ///< what --transforms is unless given
  std::string folder = {};                    ///< below the given one, the second place where the files may be
  std::vector<std::string> class_names = {};  ///< of sets whose files have numbers only
  std::string found = {};                     ///< what `lockstep data inspect` calls such files; "": it looks for none
  std::vector<std::string> mirrors = {};  ///< addresses that end in '/', tried in this order; none: nothing to fetch
  /// What is fetched: .tar.gz archives that hold `folder`, or the files themselves.
  std::vector<RemoteFile> downloads = {};
};

/// All rows.
const std::vector<KnownSet>& known_sets();

/// The row of that name. UsageError that names the nearest for another one.
const KnownSet& find_set(const std::string& name);

/// Whether a sample is a row of numbers and its target a number, not a picture and its class.
bool holds_numbers(const KnownSet& set);

/// Whether it is drawn: no files are read.
bool is_drawn(const KnownSet& set);

/// Whether it is a program's own.
bool is_own(const KnownSet& set);

/// Whether its files are in parts that have names: train, and val or test.
bool has_named_parts(const KnownSet& set);

/// Ends a sentence that misses the files of a set: "; lockstep train --dataset mnist --download brings them". Empty
/// where nothing can be fetched.
std::string how_to_download(const KnownSet& set);

/// All names, and those of the sets that can be downloaded.
std::vector<std::string> set_names();
std::vector<std::string> fetched_set_names();

}  // namespace lockstep::data
