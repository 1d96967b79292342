#include "benchmarks/support/statistics.h"

#include <algorithm>
#include <cstddef>

namespace lockstep::bench {

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double q) {
    const double place = q * double(values.size() - 1);
    const auto below = std::size_t(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - double(below)) * (values[above] - values[below]);
  };
  return {quantile(0.1), quantile(0.5), quantile(0.9)};
}

}  // namespace lockstep::bench
