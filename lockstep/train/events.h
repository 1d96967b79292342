#pragma once

// What happens in a run as the events of metrics.jsonl; docs/design/metrics.md is the reference of their fields. Pure
// functions; the time is left 0.

#include "lockstep/metrics/event.h"
#include "lockstep/train/observer.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

metrics::Event start_event(const Options& options, const RunSize& run);
/// Why the job was started again, and where it goes on; `run` is of a later start than the first.
metrics::Event fault_event(const RunSize& run);
metrics::Event train_event(const TrainEvent& event);
metrics::Event eval_event(const EvalEvent& event);
/// What the samples were taken for; `event` is of a classifier.
metrics::Event answers_event(const EvalEvent& event);
metrics::Event checkpoint_event(const SaveEvent& event);
metrics::Event done_event(const RunEnd& end);

/// Who hears of a run as events, with the time at which each was told.
class EventObserver : public Observer {
 public:
  /// `options` must outlive it.
  explicit EventObserver(const Options& options) : options_(options) {}

  void started(const RunSize& run) override {
    tell(start_event(options_, run));
    if (run.restart_count > 0) tell(fault_event(run));
  }
  void trained(const TrainEvent& event) override { tell(train_event(event)); }
  void evaluated(const EvalEvent& event) override {
    tell(eval_event(event));
    if (event.evaluation.answers && event.part.empty()) tell(answers_event(event));
  }
  void saved(const SaveEvent& event) override { tell(checkpoint_event(event)); }
  void finished(const RunEnd& end) override { tell(done_event(end)); }

 protected:
  const Options& options() const { return options_; }

 private:
  virtual void write(const metrics::Event& event) = 0;
  void tell(metrics::Event event);

  const Options& options_;
};

}  // namespace lockstep::train
