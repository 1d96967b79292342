#pragma once

// What is said of repeated measurements: the median and how far the tenths reach.

#include <vector>

namespace lockstep::bench {

struct Spread {
  double p10 = 0;
  double median = 0;
  double p90 = 0;
};

/// The quantiles, interpolated between the neighbours. Precondition: not empty.
Spread spread_of(std::vector<double> values);

}  // namespace lockstep::bench
