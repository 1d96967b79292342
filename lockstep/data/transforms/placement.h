#pragma once

// What cropping and mirroring choose, before a pixel is touched.

#include <array>
#include <cstdint>

#include "lockstep/base/random.h"
#include "lockstep/data/image.h"

namespace lockstep::data {

/// Which part of a picture is seen, and how.
struct Placement {
  CropBox box;                         ///< of the picture as it is stored; may reach beyond it, into ...
  std::array<std::uint8_t, 3> fill{};  ///< ... this colour; a grey picture takes the first number
  bool mirrored = false;               ///< of what the box holds, left becomes right

  /// Of what is seen until now, which is all of the picture, only this box.
  void crop(const CropBox& seen, const std::array<std::uint8_t, 3>& colour) {
    const int left = mirrored ? box.size.width - seen.left - seen.size.width : seen.left;
    box = {seen.top, left, seen.size};
    fill = colour;
  }
};

/// A transform that touches no pixel, seen so. Thread-safe.
class Placer {
 public:
  /// The same that apply() does to a picture, with the same draws. UsageError as of that.
  virtual void place(Placement& placement, base::RandomStream& random) const = 0;

  /// Whether it changes the box. What was cropped before cannot be again: beyond the first box is no picture.
  virtual bool crops() const = 0;

 protected:
  ~Placer() = default;
};

}  // namespace lockstep::data
