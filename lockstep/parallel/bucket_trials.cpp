#include "lockstep/parallel/bucket_trials.h"

#include <algorithm>

#include "lockstep/parallel/bucket_plan.h"

namespace lockstep::parallel {

std::vector<double> trial_sizes(const std::vector<std::size_t>& bytes) {
  std::vector<double> sizes;
  std::vector<std::vector<std::size_t>> before;
  for (const double size : {1.0, 5.0, 25.0, 100.0}) {
    auto buckets = plan_buckets(bytes, bucket_capacities({.bucket_cap_mb = size}));
    if (sizes.empty() || buckets != before) sizes.push_back(size);
    before = std::move(buckets);
  }
  return sizes;
}

std::optional<std::size_t> trial_of(std::uint64_t pass, std::size_t sizes) {
  const std::uint64_t round = pass / sizes;
  if (round >= kTrialRounds) return {};
  return std::size_t((pass + round) % sizes);
}

std::vector<double> trial_medians(std::vector<std::vector<double>> seconds) {
  std::vector<double> medians;
  for (std::vector<double>& of_size : seconds) {
    const auto first = of_size.begin() + 1, middle = first + (of_size.end() - first) / 2;
    std::nth_element(first, middle, of_size.end());
    medians.push_back(*middle);
  }
  return medians;
}

std::size_t fastest(const std::vector<double>& seconds) {
  return std::size_t(std::min_element(seconds.begin(), seconds.end()) - seconds.begin());
}

}  // namespace lockstep::parallel
