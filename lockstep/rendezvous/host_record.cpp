#include "lockstep/rendezvous/host_record.h"

#include <algorithm>

namespace lockstep::rendezvous {

std::string HostRecord::failed(const std::string& host, Time now) {
  Record& record = hosts_[host];
  std::erase_if(record.failures, [&](Time time) { return std::max(time, record.until) + kFailuresRemembered < now; });
  record.failures.push_back(now);
  const int count = int(record.failures.size());
  if (count < kFailuresToLeaveOut) return {};
  const int doublings = std::min(count - kFailuresToLeaveOut, 20);  // by then it is the longest
  const Time time = std::min(kLeftOutFirst * (1 << doublings), kLeftOutLongest);
  record.until = now + time;
  return "host " + host + " has failed " + std::to_string(count) + " times: it is left out for " +
         std::to_string(time.count() / 1'000) + " s where the job can go on without it";
}

Time HostRecord::left_out_until(const std::string& host) const {
  const auto found = hosts_.find(host);
  return found == hosts_.end() ? Time{0} : found->second.until;
}

}  // namespace lockstep::rendezvous
