#pragma once

// Which hosts fail again and again, and how long they are left out for it: pure.

#include <map>
#include <string>
#include <vector>

#include "lockstep/rendezvous/membership.h"

namespace lockstep::rendezvous {

/// So many failures that are remembered, and a host is left out. While it is, nothing is forgotten of it.
inline constexpr int kFailuresToLeaveOut = 3;
inline constexpr Time kFailuresRemembered{600'000};
/// For how long at first; twice as long with each further failure, up to the longest.
inline constexpr Time kLeftOutFirst{30'000};
inline constexpr Time kLeftOutLongest{600'000};

class HostRecord {
 public:
  /// The first failure of a generation was that host's. Returns what is to be said of it; empty: it may come again.
  std::string failed(const std::string& host, Time now);
  /// Time{0}: it is not left out, or never was.
  Time left_out_until(const std::string& host) const;

 private:
  struct Record {
    std::vector<Time> failures;  // those that are remembered, by time
    Time until{0};
  };

  std::map<std::string, Record> hosts_;
};

}  // namespace lockstep::rendezvous
