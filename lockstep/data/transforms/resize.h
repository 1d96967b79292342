#pragma once

// Resizing to the bytes that Pillow gives (Image.resize), which torchvision's Resize and
// RandomResizedCrop use. Thread-safe; each thread keeps its scratch memory for the next call.

#include <optional>

#include "lockstep/data/image.h"
#include "lockstep/data/transforms/resample_plan.h"

namespace lockstep::data {

/// A part of a picture by its edges, in pixels and fractions of them, from the upper left corner.
struct Box {
  float left = 0;
  float top = 0;
  float right = 0;
  float bottom = 0;
};

/// The picture in another size. Bilinear and bicubic are antialiased: 8-bit fixed point,
/// rounded between the two directions. UsageError when the size is not positive.
Image resize(const ImageView& image, Size size, Interpolation interpolation = Interpolation::bilinear);

/// The same for the part `box` of it; pixels around the box take part where the filter reaches them.
/// UsageError also when the box is empty or not inside of the picture.
Image resize(const ImageView& image, Size size, Interpolation interpolation, const Box& box);

/// The size that torchvision's Resize(edge, max_size) gives to a picture: the smaller edge becomes
/// `edge`, the other one follows, rounded down; when it would get longer than `max_size`, it becomes
/// that and the smaller one shorter. UsageError unless 0 < edge < max_size.
Size resized_by_edge(Size image, int edge, std::optional<int> max_size = {});

}  // namespace lockstep::data
