#pragma once

// Who is told of a run, and what: in terms of training. Only rank 0 tells anybody (observers.h).

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/train/batch_plan.h"
#include "lockstep/train/evaluation.h"

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

/// What is known before the first step.
struct RunSize {
  int world_size = 1;
  BatchPlan plan;
  std::int64_t total_steps = 0;
  std::int64_t train_samples = 0;
  std::int64_t epoch_steps = 0;  ///< steps that a pass over the training set takes; 0: it is not read
  bool convolutions = false;     ///< the model has some, so its pictures may be channels-last
  std::string page_size;         ///< of the shared state, as the kernel granted it
  std::string new_layer;         ///< why the last layer has no weights of the file's; empty: it has them
  std::int64_t ahead = 0;        ///< other than 0 where the run went on with another batch or number of shards: step
                                 ///< n stands where step n + ahead of a run of this batch alone would
  int restart_count = 0;         ///< how often the job was started before
  std::string last_fault;        ///< why the start before this one ended; empty: not known
  std::optional<double> lost_seconds;  ///< at a restart: since that one wrote into its files last; nothing: not known
  std::string resumed_from;            ///< the checkpoint that the run goes on from, or only evaluates; empty: none
  std::string other_schedule;          ///< in what its learning rate goes otherwise; empty: in nothing
  std::string other_average;           ///< in what the average of its weights does; empty: in nothing
  std::string other_training;          ///< in what its steps are computed otherwise; empty: in nothing
  std::string other_evaluation;        ///< in what it is evaluated on; empty: in nothing
  std::string other_device;            ///< on which type of device it went before; empty: on this one's
  std::int64_t first_step = 1;         ///< later than 1 when the state of an earlier start was taken over
};

struct TrainEvent {
  std::int64_t step = 0;
  std::int64_t epoch = 1;  ///< from 1, as the step
  double loss = 0;         ///< of the step's whole global batch, before the update
  double lr = 0;
  std::optional<double> gradient_norm = {};  ///< of the step's mean gradients, before they were clipped; none: they
                                             ///< were not to be
  std::int64_t samples = 0;  ///< since the last train event; 0: of a step that an earlier start of the job has taken,
                             ///< so that nothing was measured, and neither rate nor seconds are told
  TimeSplit time;
  double exchange = 0;  ///< of the seconds of steps: waiting for what other ranks have of gradients and votes
  InputWork input;
  std::int64_t memory_bytes = 0;  ///< of all processes, what is each one's alone; 0: not known
  std::string stores;     ///< how rank 0's slice was written: "plain" or "streaming"; empty: not by this process
  double loss_scale = 1;  ///< behind the step; 1: the loss is not scaled
};

struct EvalEvent {
  std::int64_t step = 0;   ///< updates done so far
  std::int64_t epoch = 1;  ///< from 1
  Evaluation evaluation;
  std::optional<Evaluation> ema = {};  ///< of the average of the weights
  std::string part = {};               ///< of the best checkpoint, at the end: what it was evaluated on; else empty
};

struct RunEnd {
  std::int64_t steps = 0;          ///< of the whole run, whatever its starts were
  std::int64_t attempt_steps = 0;  ///< of these, since this start; what follows is of them
  std::int64_t samples = 0;
  double seconds = 0;           ///< since Observer::started()
  double training_seconds = 0;  ///< the part spent in steps
  std::string weights_hash;
};

/// A checkpoint that is whole, perhaps some steps after the one that it is of.
struct SaveEvent {
  std::int64_t step = 0;
  std::string path;
  std::int64_t skipped = 0;  ///< that fell due since the job's start while another one was written, and were left out

  bool operator==(const SaveEvent&) const = default;
};

/// A run that a signal has stopped.
struct RunStop {
  std::int64_t step = 0;   ///< the last one
  std::string checkpoint;  ///< its path; empty: it could not be written
};

/// Is told what happens, when it has happened; whoever is not interested in something leaves it out. What it throws
/// ends the run. An observer only looks on: what decides how training goes on must be the same on all ranks, and has no
/// place here (loop.h).
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void started(const RunSize& run) {}
  virtual void trained(const TrainEvent& event) {}
  virtual void evaluated(const EvalEvent& event) {}
  virtual void saved(const SaveEvent& event) {}
  virtual void finished(const RunEnd& end) {}
  virtual void stopped(const RunStop& stop) {}
};

}  // namespace lockstep::train
