#pragma once

// A folder per class, as torchvision's ImageFolder reads it.

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/codecs/jpeg.h"
#include "lockstep/data/picture_set.h"

namespace lockstep::data {

struct ImageFolderOptions {
  /// A file that remembers what the folders held, "": none. Walking a million pictures takes seconds, on a network file
  /// system minutes; with the file, only a look at each folder's times. Whatever is added, removed or renamed is
  /// noticed, and the file made anew. It is not written within two seconds of a change of the folders (a later change
  /// might not show); it may lie in the root of the set, not in a class folder. All ranks may name the same file.
  std::string index_cache;

  /// With a scale_denom other than 1 pictures are decoded at a fraction of their size: faster, with other pixels than
  /// torchvision's. PNG pictures are then refused when they are read.
  JpegOptions jpeg = {};
};

/// The picture in a file. A JPEG file is decoded when it is known which part of it is needed. UsageError as of
/// read_image() (codecs/decode.h), for damage behind the header of a JPEG file when it is decoded; also for a PNG file
/// if scale_denom is not 1.
Picture read_picture(const std::string& path, const JpegOptions& options = {});

/// The pictures in the folders of `path`: the folders' names, sorted by their bytes (Python's order of
/// UTF-8 names), are the classes; their files ending in .jpg, .jpeg or .png (upper or lower case), in
/// sub-folders too, are the samples, in torchvision's order. Other files are passed over. Symbolic links
/// are followed. Pictures are read when asked for.
class ImageFolder : public PictureSet {
 public:
  struct Entry {
    std::string path;
    std::int64_t label;
  };

  /// UsageError: no such folder, one that cannot be read, no class folder, a class without pictures, a link
  /// that leads back into itself or where it cannot be known whether there is a folder; a picture of a kind that
  /// torchvision would read and we cannot (.bmp, .pgm, .ppm, .tif, .tiff, .webp), because the sets would differ; an
  /// index file that cannot be read or written. A damaged index file is replaced, with a line on stderr.
  explicit ImageFolder(const std::string& path, const ImageFolderOptions& options = {});

  std::int64_t size() const override { return std::int64_t(entries_.size()); }
  /// UsageError also for an index outside the set.
  Sample get(std::int64_t index) const override;
  std::string file_of(std::int64_t index) const override { return entries_.at(std::size_t(index)).path; }
  const std::vector<std::string>& classes() const override { return classes_; }
  /// Of labels and file names, from the root on. Sizes of files are not known without asking for each.
  SetFingerprint fingerprint() const override { return fingerprint_; }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<std::string> classes_;
  std::vector<Entry> entries_;
  SetFingerprint fingerprint_;
  JpegOptions jpeg_;
};

}  // namespace lockstep::data
