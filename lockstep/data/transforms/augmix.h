#pragma once

// AugMix: the picture mixed with what chains of operations make of it.

#include <vector>

#include "lockstep/data/transforms/augment.h"

namespace lockstep::data {

struct AugMixOptions {
  int severity = 3;       ///< 1 … 10: so many of the ten magnitudes of an operation may be drawn, the weakest
  int mixture_width = 3;  ///< chains
  int chain_depth = -1;   ///< operations of each; 0 or less: 1 to 3, drawn for each
  double alpha = 1;       ///< of the distributions of the shares
  bool all_ops = true;    ///< with brightness, colour, contrast and sharpness; the paper leaves them out
  WarpOptions warp = {.interpolation = Interpolation::bilinear};
};

/// What is drawn for a picture.
struct AugMixDraws {
  struct Operation {
    AugmentOp op = AugmentOp::identity;
    double magnitude = 0;
  };
  std::vector<float> balance;                  ///< two: the share of the picture itself and that of all chains
  std::vector<float> shares;                   ///< of each chain in theirs
  std::vector<std::vector<Operation>> chains;  ///< one for each share
};

/// Hendrycks et al., "AugMix", with torchvision's operations, magnitudes and arithmetic of the mix (float32, cut off to
/// whole numbers). The operations are those of the other policies, Pillow's; torchvision turns the picture into a
/// tensor before, whose warps and blends round in other ways.
class AugMix : public Transform {
 public:
  /// UsageError unless severity is 1 … 10, mixture_width at least 1, alpha above 0 and finite.
  explicit AugMix(const AugMixOptions& options = {});
  void apply(Picture& picture, base::RandomStream& random) const override;

  /// The draws for a picture of this size.
  AugMixDraws draw(Size size, base::RandomStream& random) const;

 private:
  AugMixOptions options_;
};

/// What AugMix chooses from, in the order of torchvision.
const std::vector<AugmentOp>& augmix_operations(bool all_ops);

/// The picture mixed as drawn.
Image augmixed(const ImageView& image, const AugMixDraws& draws, const WarpOptions& warp);

}  // namespace lockstep::data
