#pragma once

// What a person sees of a run.

#include <optional>

#include "lockstep/metrics/progress.h"
#include "lockstep/train/events.h"

namespace lockstep::train {

/// Progress and results on standard output (metrics/progress.h), hints on standard error.
class Terminal final : public EventObserver {
 public:
  using EventObserver::EventObserver;
  void started(const RunSize& run) override;
  void stopped(const RunStop& stop) override;

 private:
  void write(const metrics::Event& event) override { progress_->write(event); }

  std::optional<metrics::Progress> progress_;  // from started() on
  std::int64_t steps_ = 0;                     // of the run
};

}  // namespace lockstep::train
