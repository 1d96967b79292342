#pragma once

// Sets of labelled pictures: what a set is, and one that is held in memory.

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/set_fingerprint.h"
#include "lockstep/data/transforms/picture.h"

namespace lockstep::data {

struct Sample {
  Picture picture;
  std::int64_t label = 0;
};

/// Derive from it to make a set of your own. Thread-safe: loader threads call get() at the same time.
class PictureSet {
 public:
  virtual ~PictureSet() = default;
  virtual std::int64_t size() const = 0;

  /// The sample at 0 <= index < size(); the picture may refer to pixels of the set, which must
  /// outlive it. What is wrong with a sample's file is a UsageError that names the file.
  virtual Sample get(std::int64_t index) const = 0;

  /// That get(index) comes soon, in this thread: a set whose samples lie in memory fetches this one's into the cache
  /// meanwhile. Any index. Does nothing unless overridden.
  virtual void expect(std::int64_t index) const;

  /// The file of a sample, for messages; "" when it has none of its own.
  virtual std::string file_of(std::int64_t index) const;

  /// Names; the place of a name is its label.
  virtual const std::vector<std::string>& classes() const = 0;

  /// By what ranks and attempts of a job know that they read the same set. Unless overridden: size and classes.
  virtual SetFingerprint fingerprint() const;
};

/// Pictures of one size, uncompressed: [N, height, width, channels].
class MemoryPictures : public PictureSet {
 public:
  struct Content {
    Size size;
    int channels = 3;
    std::vector<std::uint8_t> pixels;
    std::vector<std::int64_t> labels;
    std::vector<std::string> classes;
  };

  /// UsageError when pixels and labels differ in number, a label has no class or two classes have one name.
  explicit MemoryPictures(Content content);

  std::int64_t size() const override { return std::int64_t(content_.labels.size()); }
  /// UsageError for an index outside the set. Final: PictureBatches reads the pixels where they are.
  Sample get(std::int64_t index) const final;
  void expect(std::int64_t index) const override;
  const std::vector<std::string>& classes() const override { return content_.classes; }
  SetFingerprint fingerprint() const override;
  const Content& content() const { return content_; }
  /// The pixels at 0 <= index < size().
  ImageView pixels(std::int64_t index) const;

 private:
  std::size_t picture_bytes() const;

  Content content_;
};

/// UsageError that begins with `of` and names the first name that stands twice: a label has one name, a name one label.
void check_class_names(const std::vector<std::string>& classes, const std::string& of);

/// UsageError unless 0 <= index < size.
void check_index(std::int64_t index, std::int64_t size);

}  // namespace lockstep::data
