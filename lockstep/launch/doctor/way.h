#pragma once

// Measuring the way from one machine to another over TCP. One listens for one peer that knows a token, the other
// connects, sends single bytes there and back, then a lot at once.

#include <chrono>
#include <string>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/doctor/between.h"

namespace lockstep::launch {

using Deadline = std::chrono::steady_clock::time_point;

/// Characters of a token.
inline constexpr std::size_t kTokenSize = 36;

struct WayListener {
  base::UniqueFd socket;
  std::string address;
  int port = 0;
};

/// Listens at an address of `host`, which must be this machine's, and at a free port. Throws Error.
WayListener listen_for_way(const std::string& host);

/// Serves the peer that sends `token` first; others are dropped, one after the other. Ends early when `stop` is
/// readable. Returns whether it was served.
bool serve_way(const WayListener& listener, const std::string& token, int stop, Deadline deadline);

/// Measures the way to who listens there. Fills all but the names.
WayFacts measure_way(const std::string& host, int port, const std::string& token, Deadline deadline);

}  // namespace lockstep::launch
