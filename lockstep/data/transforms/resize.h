#pragma once

// Resizing to the bytes that Pillow gives (Image.resize), which torchvision's Resize and
// RandomResizedCrop use. Thread-safe; scratch memory comes from the thread's (pixel_memory.h), at most as much as the
// larger one of the two pictures has, or what of them is asked for.

#include <functional>
#include <optional>

#include "lockstep/data/image.h"
#include "lockstep/data/transforms/picture.h"
#include "lockstep/data/transforms/resample_plan.h"

namespace lockstep::data {

/// A part of a picture by its edges, in pixels and fractions of them, from the upper left corner.
struct Box {
  float left = 0;
  float top = 0;
  float right = 0;
  float bottom = 0;
};

/// The picture in another size. All but nearest are antialiased: 8-bit fixed point,
/// rounded between the two directions. UsageError when the size is not positive or has more than kMaxPixels.
Image resize(const ImageView& image, Size size, Interpolation interpolation = Interpolation::bilinear);

/// The same for the part `box` of it; pixels around the box take part where the filter reaches them.
/// UsageError also when the box is empty or not inside of the picture.
Image resize(const ImageView& image, Size size, Interpolation interpolation, const Box& box);

/// How a whole picture becomes another.
struct Resizing {
  Size from;
  Box box;  ///< of `from`
  Size to;
  Interpolation interpolation = Interpolation::bilinear;
};

/// Gives the pixels of a rectangle of the picture that is resized.
using SourcePixels = std::function<ImageView(const CropBox& box)>;

/// The rectangle `wanted` of the new picture, with the pixels that it has there. Nothing else is computed, and `source`
/// is asked once, for what takes part. UsageError as of resize(), for what is wanted.
Image resize_part(const Resizing& resizing, const CropBox& wanted, const SourcePixels& source);

/// The whole picture in another size, made when somebody looks at pixels, and as far as they are seen then: what is
/// cropped afterwards costs nothing. UsageError when the size is not positive, and as of resize() when it is made.
Picture resized(Picture picture, Size size, Interpolation interpolation);

/// The size that torchvision's Resize(edge, max_size) gives to a picture: the smaller edge becomes
/// `edge`, the other one follows, rounded down; when it would get longer than `max_size`, it becomes
/// that and the smaller one shorter. UsageError unless 0 < edge < max_size, and when the other edge is no int.
Size resized_by_edge(Size image, int edge, std::optional<int> max_size = {});

}  // namespace lockstep::data
