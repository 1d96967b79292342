#pragma once

// The buckets of the classic path: of the size that was asked for, or of the one that turns out to be the fastest.

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/parallel/bucket_sender.h"
#include "lockstep/parallel/logging_data.h"

namespace lockstep::parallel {

class BucketTuner {
 public:
  /// As BucketSender.
  BucketTuner(const NamedTensors& parameters, std::shared_ptr<comm::Group> group, const DataParallelOptions& options,
              StepClock& clock);

  /// The buckets of the pass that goes on.
  BucketSender* operator->() { return senders_[now_].get(); }
  const BucketSender* operator->() const { return senders_[now_].get(); }

  /// Whether sizes are still tried.
  bool tries() const { return senders_.size() > 1; }
  /// Around the exchange of pass `pass`, counted from 0 alike on all ranks. The end of the last trial is collective.
  void begin_pass(std::uint64_t pass);
  void end_pass(std::uint64_t pass);

  const std::vector<BucketTrial>& tried() const { return tried_; }

 private:
  void choose();

  std::shared_ptr<comm::Group> group_;
  std::vector<double> sizes_;                           ///< of senders_; empty where nothing is tried
  std::vector<std::unique_ptr<BucketSender>> senders_;  ///< one, when the size is chosen
  std::size_t now_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::vector<std::vector<double>> seconds_;  ///< by size, then by round
  std::vector<BucketTrial> tried_;
};

}  // namespace lockstep::parallel
