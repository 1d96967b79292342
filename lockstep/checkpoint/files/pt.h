#pragma once

// What torch.save writes: a pickle whose tensors lie in the same file. Both formats: the zip archive (torch 1.6 and
// later), and the one before it, five pickles and then the storages.

#include <map>
#include <optional>
#include <string>

#include "lockstep/checkpoint/files/pickle.h"
#include "lockstep/checkpoint/files/stored_tensor.h"
#include "lockstep/checkpoint/files/zip.h"

namespace lockstep::checkpoint {

/// Any thread; reading changes nothing in the object. Messages name file and offset.
class PtFile {
 public:
  /// Reads the pickle, not the tensors. `file` must outlive this. UsageError when it is no such file, is damaged, or
  /// its pickle is longer than 64 MB.
  explicit PtFile(const InputFile& file);

  /// What was saved. Nothing was executed: see pickle.h.
  const Pickle& saved() const { return saved_; }

  /// Whether the value is a dense tensor or parameter.
  bool is_tensor(const PickledValue& value) const;

  /// Of a value that is_tensor(). UsageError when its storage is not in the file or is of an unknown kind, or the
  /// tensor reaches out of it or has more elements than the file has bytes for.
  StoredTensor tensor(const PickledValue& value) const;

 private:
  // What a pickle says of a storage.
  struct Storage {
    std::string key;
    std::string dtype;          // "U8" for one that has none of its own
    std::uint64_t count = 0;    // of elements
    std::uint64_t skipped = 0;  // in front of the part that the tensor is in
    std::uint64_t used = 0;     // elements of that part
  };
  // A function and its arguments; nothing where no tensor is made.
  struct Made {
    std::string function;
    const PickledValue* arguments = nullptr;
  };
  void open_archive();
  void open_old();
  void place_old_storages(const Pickle& keys, std::uint64_t begin);
  Made made_by(const PickledValue& value) const;
  bool is_plain(const std::string& function, const PickledValue& arguments) const;
  Storage storage(const PickledValue& value) const;
  Range place(const Storage& storage, const PickledValue& value) const;
  const PickledValue& argument(const PickledValue& tuple, std::size_t index, PickledValue::Kind kind,
                               const char* what) const;
  std::uint64_t count(const PickledValue& tuple, std::size_t index, const char* what) const;
  std::vector<std::int64_t> counts(const PickledValue& tuple, std::size_t index, const char* what) const;
  void check_extent(const StoredTensor& tensor, std::uint64_t first, std::uint64_t elements,
                    const PickledValue& value) const;

  const InputFile& file_;
  std::string bytes_;  // in which the values' texts lie
  Pickle saved_;
  std::optional<ZipArchive> archive_;
  std::string folder_;
  bool big_endian_ = false;
  std::map<std::string, Range> old_storages_;
};

/// Whether the file begins as the archive does, or as the older format.
bool begins_as_pt(const InputFile& file);

}  // namespace lockstep::checkpoint
