#include "lockstep/data/transforms/random_lists.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data {

RandomApply::RandomApply(std::vector<AnyTransform> transforms, double p) : transforms_(std::move(transforms)), p_(p) {
  require_probability(p, "RandomApply");
}

void RandomApply::apply(Picture& picture, base::RandomStream& random) const {
  if (!happens(p_, random)) return;
  for (const AnyTransform& transform : transforms_) transform.apply(picture, random);
}

RandomChoice::RandomChoice(std::vector<AnyTransform> transforms)
    : transforms_(std::move(transforms)), weights_(transforms_.size(), 1.0) {
  if (transforms_.empty()) throw UsageError("RandomChoice: nothing to choose from");
}

RandomChoice::RandomChoice(std::vector<AnyTransform> transforms, std::vector<double> weights)
    : RandomChoice(std::move(transforms)) {
  weights_ = std::move(weights);
  if (weights_.size() != transforms_.size()) {
    throw UsageError("RandomChoice: " + std::to_string(weights_.size()) + " weights for " +
                     std::to_string(transforms_.size()) + " transforms");
  }
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  if (!(std::ranges::min(weights_) >= 0 && sum > 0 && std::isfinite(sum))) {
    throw UsageError("RandomChoice: weights that are finite, not negative and not all 0 expected");
  }
}

void RandomChoice::apply(Picture& picture, base::RandomStream& random) const {
  std::vector<double> ends(weights_.size());
  std::partial_sum(weights_.begin(), weights_.end(), ends.begin());
  const double place = random.between(0, 1) * ends.back();  // a sum of tiny weights may be reached by rounding
  const auto chosen = std::size_t(std::ranges::upper_bound(ends, place) - ends.begin());
  transforms_[std::min(chosen, transforms_.size() - 1)].apply(picture, random);
}

RandomOrder::RandomOrder(std::vector<AnyTransform> transforms) : transforms_(std::move(transforms)) {}

void RandomOrder::apply(Picture& picture, base::RandomStream& random) const {
  std::vector<std::size_t> order(transforms_.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(std::uint32_t(i))]);
  for (const std::size_t place : order) transforms_[place].apply(picture, random);
}

}  // namespace lockstep::data
