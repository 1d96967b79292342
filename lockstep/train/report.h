#pragma once

// What a run says of itself: the events of metrics.jsonl (docs/design/metrics.md), in terms
// of training. Only rank 0 reports.

#include <memory>
#include <string>

#include "lockstep/rendezvous/environment.h"
#include "lockstep/train/batch_plan.h"
#include "lockstep/train/evaluation.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// Where the time since the last train event went, in seconds.
struct TimeSplit {
  double data = 0;     ///< waiting for the loader
  double compute = 0;  ///< forward, loss, backward
  double step = 0;     ///< waiting for peers, reduce, update, commit
  double total() const { return data + compute + step; }
};

/// What the loader's threads of this rank did meanwhile, beside the steps; their seconds are added up.
struct InputWork {
  double prepare = 0;  ///< making batches
  double decode = 0;   ///< of these, reading and decoding files
};

struct TrainEvent {
  std::int64_t step = 0;
  std::int64_t epoch = 1;  ///< from 1, as the step
  double loss = 0;         ///< of the step's whole global batch, before the update
  double lr = 0;
  std::int64_t samples = 0;  ///< since the last train event; 0: of a step that an earlier start of the job has taken,
                             ///< so that nothing was measured, and neither rate nor seconds are told
  TimeSplit time;
  InputWork input;
  std::string stores;  ///< how rank 0's slice was written: "plain" or "streaming"; empty: not by this process
};

struct RunSize {
  int world_size = 1;
  BatchPlan plan;
  std::int64_t total_steps = 0;
  std::int64_t train_samples = 0;
  bool convolutions = false;    ///< the model has some, so its pictures may be channels-last
  std::string page_size;        ///< of the shared state, as the kernel granted it
  int restart_count = 0;        ///< how often the job was started before
  std::int64_t first_step = 1;  ///< later than 1 when the state of an earlier start was taken over
};

struct RunEnd {
  std::int64_t steps = 0;          ///< of the whole run, whatever its starts were
  std::int64_t attempt_steps = 0;  ///< of these, since this start; what follows is of them
  std::int64_t samples = 0;
  double seconds = 0;           ///< since Report::start()
  double training_seconds = 0;  ///< the part spent in steps
  std::string weights_hash;
};

class Report {
 public:
  virtual ~Report() = default;
  virtual void start(const RunSize& size) = 0;
  virtual void train(const TrainEvent& event) = 0;
  virtual void eval(std::int64_t epoch, std::int64_t step, const Evaluation& evaluation) = 0;
  virtual void done(const RunEnd& end) = 0;
};

/// The report of rank 0: terminal, and the files of options.output_dir when there is one, which is this process's
/// while the report lives (metrics/run_directory.h); those of an earlier start of the same job are continued.
/// UsageError when the directory cannot be used. Other ranks' report says nothing.
std::unique_ptr<Report> make_report(const Options& options, const rendezvous::Place& place);

}  // namespace lockstep::train
