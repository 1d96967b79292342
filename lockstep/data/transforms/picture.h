#pragma once

// A picture on its way through the transforms.

#include <memory>

#include "lockstep/data/deferred_image.h"

namespace lockstep::data {

/// Cropping and mirroring only note what is to be seen; pixels are copied when somebody needs them
/// in order, at best by the pass that writes the batch. A deferred picture (an encoded, a resized one) is made when
/// somebody looks at pixels, as far as they are seen then. Copies share the pixels, which nobody changes. Not
/// thread-safe.
class Picture {
 public:
  Picture() = default;
  explicit Picture(Image image) { replace(std::move(image)); }

  /// A picture still to be made.
  explicit Picture(std::shared_ptr<const DeferredImage> deferred);

  /// Pixels that somebody else keeps for as long as the picture lives.
  static Picture borrowed(const ImageView& view);

  Size size() const { return window_.size(); }
  int channels() const { return window_.channels; }

  /// What is seen, left and right not yet exchanged when mirrored(). UsageError when it cannot be made.
  const ImageView& window() const {
    if (deferred_) make();
    return window_;
  }
  bool mirrored() const { return mirrored_; }

  /// Only this rectangle is seen from now on. UsageError when it is not inside of the picture.
  void crop(int top, int left, Size size);

  /// Left becomes right.
  void mirror() { mirrored_ = !mirrored_; }

  /// What is seen, in order. Valid until the picture changes. UsageError as of window().
  const ImageView& pixels();

  /// Memory that lives as long as this picture and its copies do, once it is made; 0 when the pixels are
  /// borrowed.
  std::size_t owned_bytes() const;

  /// Other pixels take the place of these.
  void replace(Image image);

 private:
  void make() const;

  mutable std::shared_ptr<const DeferredImage> deferred_;  // empty: made
  mutable std::shared_ptr<const Image> owned_;             // empty: borrowed
  mutable ImageView window_;                               // until made only a size and channels, ...
  int top_ = 0, left_ = 0;                                 // ... and its place
  bool mirrored_ = false;
};

/// The mirror image.
Image mirrored(const ImageView& view);

}  // namespace lockstep::data
