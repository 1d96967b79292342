#pragma once

// Lists of transforms of which chance decides: RandomApply, RandomChoice and RandomOrder as in torchvision. All draw
// from the stream of the list, one after the other.

#include <vector>

#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// All of them, in order, or none: RandomApply({ColorJitter({.hue = 0.1}), GaussianBlur(5)}, 0.3). The probability is
/// always given: without it RandomApply({RandomApply(...)}) would be a copy of the inner one.
class RandomApply : public Transform {
 public:
  /// UsageError unless 0 <= p <= 1.
  RandomApply(std::vector<AnyTransform> transforms, double p);
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  std::vector<AnyTransform> transforms_;
  double p_;
};

/// One of them: RandomChoice({RandomRotation(10), GaussianBlur(3)}).
class RandomChoice : public Transform {
 public:
  /// Each as likely. UsageError when there is none.
  explicit RandomChoice(std::vector<AnyTransform> transforms);

  /// Each with a probability proportional to its weight, as Python's random.choices. UsageError also unless there is a
  /// weight for each, none is negative or not finite, and one is positive.
  RandomChoice(std::vector<AnyTransform> transforms, std::vector<double> weights);
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  std::vector<AnyTransform> transforms_;
  std::vector<double> weights_;
};

/// All of them, each order as likely.
class RandomOrder : public Transform {
 public:
  explicit RandomOrder(std::vector<AnyTransform> transforms);
  void apply(Picture& picture, base::RandomStream& random) const override;

 private:
  std::vector<AnyTransform> transforms_;
};

}  // namespace lockstep::data
