#include "lockstep/metrics/meters.h"

namespace lockstep::metrics {

Throughput::Throughput(double now, double window) : window_(window), marks_{{now, 0}} {}

void Throughput::add(double now, std::int64_t samples) {
  marks_.emplace_back(now, marks_.back().second + samples);
  // The front stays the newest mark that is outside the window, so the window is always full.
  while (marks_.size() > 2 && marks_[1].first <= now - window_) marks_.pop_front();
}

double Throughput::per_second() const {
  const double seconds = marks_.back().first - marks_.front().first;
  return seconds > 0 ? static_cast<double>(marks_.back().second - marks_.front().second) / seconds : 0;
}

}  // namespace lockstep::metrics
