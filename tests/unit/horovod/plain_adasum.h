#pragma once

// Adasum in plain loops, for comparison: the formula of lockstep/horovod/adasum.h.

#include <cstddef>
#include <vector>

namespace lockstep::horovod {

inline std::vector<double> plain_adasum(const std::vector<std::vector<double>>& vectors) {
  if (vectors.size() == 1) return vectors[0];
  std::size_t half = 1;
  while (half * 2 < vectors.size()) half *= 2;
  const auto middle = vectors.begin() + std::ptrdiff_t(half);
  const std::vector<double> a = plain_adasum({vectors.begin(), middle});
  const std::vector<double> b = plain_adasum({middle, vectors.end()});
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  std::vector<double> sum;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum.push_back((aa == 0 ? 1 : 1 - ab / (2 * aa)) * a[i] + (bb == 0 ? 1 : 1 - ab / (2 * bb)) * b[i]);
  return sum;
}

}  // namespace lockstep::horovod
