#pragma once

// A picture whose pixels are made when they are needed, and as far as they are: decoded from a file, or resized.

#include "lockstep/data/image.h"

namespace lockstep::data {

/// Pixels that hold a rectangle of a picture, and where they lie in it.
struct ImagePart {
  Image image;
  int top = 0;
  int left = 0;
};

/// Thread-safe: nothing in it changes.
class DeferredImage {
 public:
  virtual ~DeferredImage() = default;
  virtual Size size() const = 0;
  virtual int channels() const = 0;

  /// The pixels of `box`, which lies inside, and possibly some around: the same ones that making all of it
  /// gives. UsageError as of decode() and resize().
  virtual ImagePart part(const CropBox& box) const = 0;
};

}  // namespace lockstep::data
