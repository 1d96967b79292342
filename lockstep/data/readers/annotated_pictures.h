#pragma once

// Pictures by a file of annotations: a path and a label in each line.

#include <string>
#include <vector>

#include "lockstep/data/picture_set.h"

namespace lockstep::data {

/// The pictures that a CSV file (.gz: unpacked) lists, in its order: the first field of a line is the picture's path,
/// from the folder of the file on unless it is absolute, the second its label; further ones are passed over. The first
/// line holds names when its first field does not end as a picture's does (.jpg, .jpeg, .png). Pictures are read when
/// asked for.
class AnnotatedPictures : public PictureSet {
 public:
  /// The labels are `classes`, or, when there are none, those in the file: sorted as numbers when all are whole
  /// numbers, else by their bytes. UsageError, "file:line: ...": a line without label, an empty one or one that is no
  /// class, a path that does not end as a picture's; without a line: the file cannot be read or lists none.
  explicit AnnotatedPictures(const std::string& file, std::vector<std::string> classes = {});

  std::int64_t size() const override { return std::int64_t(entries_.size()); }
  /// UsageError also for an index outside the set.
  Sample get(std::int64_t index) const override;
  std::string file_of(std::int64_t index) const override;
  const std::vector<std::string>& classes() const override { return classes_; }
  /// Of labels and paths, as they stand in the file.
  SetFingerprint fingerprint() const override { return fingerprint_; }

 private:
  struct Entry {
    std::string path;
    std::int64_t label = 0;
  };

  std::string folder_;
  std::vector<std::string> classes_;
  std::vector<Entry> entries_;
  SetFingerprint fingerprint_;
};

}  // namespace lockstep::data
