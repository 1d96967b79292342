#pragma once

// A picture that is decoded when its pixels are needed, and as far as they are.

#include "lockstep/data/image.h"

namespace lockstep::data {

/// Pixels that hold a rectangle of a picture, and where they lie in it.
struct DecodedPart {
  Image image;
  int top = 0;
  int left = 0;
};

/// Thread-safe: nothing in it changes.
class EncodedImage {
 public:
  virtual ~EncodedImage() = default;
  virtual Size size() const = 0;
  virtual int channels() const = 0;

  /// The pixels of `box`, which lies inside, and possibly some around: the same ones that decoding all of it
  /// gives. UsageError as of decode().
  virtual DecodedPart decode(const CropBox& box) const = 0;
};

}  // namespace lockstep::data
