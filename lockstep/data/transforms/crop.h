#pragma once

// Crops and padding, with torchvision's names, sizes and rounding.

#include <array>
#include <cstdint>
#include <vector>

#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// What stands beyond the edge of a picture "abcd".
enum class PaddingMode {
  constant,   ///< the fill colour
  edge,       ///< aa|abcd|dd
  reflect,    ///< cb|abcd|cb
  symmetric,  ///< ba|abcd|dc
};

/// Pixels added at each side, as torchvision takes them: one number, two (left and right, top and bottom) or four.
struct Padding {
  Padding(int all = 0)  // NOLINT(google-explicit-constructor): .padding = 4
      : Padding(all, all, all, all) {}
  Padding(int left_and_right, int top_and_bottom)
      : Padding(left_and_right, top_and_bottom, left_and_right, top_and_bottom) {}
  Padding(int l, int t, int r, int b) : left(l), top(t), right(r), bottom(b) {}

  int left;
  int top;
  int right;
  int bottom;
};

struct Border {
  PaddingMode mode = PaddingMode::constant;
  std::array<std::uint8_t, 3> fill{};  ///< for constant; a grey picture takes the first
};

/// The picture with a border around. UsageError for a negative padding.
Image pad(const ImageView& image, const Padding& padding, const Border& border = {});

/// `places` (of pixels along a line; −1: fill) with more before and after it, as numpy.pad.
std::vector<int> padded(const std::vector<int>& places, int before, int after, PaddingMode mode);

/// Only what the box holds is seen from now on; beyond the picture it holds `fill`. UsageError when that is too large.
void see(Picture& picture, const CropBox& box, const std::array<std::uint8_t, 3>& fill);

/// The middle of the picture, square where one number is given; a smaller one is first padded with black.
class CenterCrop : public Transform, private Placer {
 public:
  /// UsageError unless the size is positive.
  explicit CenterCrop(Size size);
  explicit CenterCrop(int edge) : CenterCrop(Size{edge, edge}) {}
  void apply(Picture& picture, base::RandomStream& random) const final;
  const Placer* placer() const override { return this; }

 private:
  CropBox box_in(Size seen) const;
  void place(Placement& placement, base::RandomStream& random) const override;
  bool crops() const override { return true; }

  Size size_;
};

struct RandomCropOptions {
  Padding padding = {};
  bool pad_if_needed = false;  ///< pads a smaller picture by the missing rows and columns, at both sides
  Border border = {};
};

/// A part of this size at a random place of the padded picture, each place as likely.
class RandomCrop : public Transform, private Placer {
 public:
  /// UsageError unless the size is positive and the padding not negative.
  explicit RandomCrop(Size size, const RandomCropOptions& options = {});
  explicit RandomCrop(int edge, const RandomCropOptions& options = {}) : RandomCrop(Size{edge, edge}, options) {}
  /// UsageError when the padded picture is smaller than the crop.
  void apply(Picture& picture, base::RandomStream& random) const final;
  /// With a border of one colour.
  const Placer* placer() const override { return options_.border.mode == PaddingMode::constant ? this : nullptr; }

 private:
  struct Drawn;
  Drawn draw(Size seen, base::RandomStream& random) const;
  void place(Placement& placement, base::RandomStream& random) const override;
  bool crops() const override { return true; }

  Size size_;
  RandomCropOptions options_;
};

}  // namespace lockstep::data
