#pragma once

// What workers say of when they ran: lines of MASTER_PORT, which each generation has its own of, and a time.

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <utility>

namespace lockstep::testing {

/// "": no two generations ran at the same time.
inline std::string two_halves(const std::string& said) {
  std::map<int, std::pair<double, double>> generations;
  std::istringstream beats(said);
  int port = 0;
  for (double now = 0; beats >> port >> now;) {
    auto& [first, last] = generations.try_emplace(port, now, now).first->second;
    first = std::min(first, now);
    last = std::max(last, now);
  }
  for (const auto& [one, when] : generations)
    for (const auto& [other, then] : generations)
      if (one != other && when.first < then.second && then.first < when.second)
        return "workers of ports " + std::to_string(one) + " and " + std::to_string(other) + " ran at the same time";
  return "";
}

}  // namespace lockstep::testing
