#pragma once

// All who are told of a run.

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/metrics/run_directory.h"
#include "lockstep/train/observer.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// Tells several, in their order; they end in the opposite one. One that fails does not keep anything from the others;
/// then the first failure is thrown.
class Observers final : public Observer {
 public:
  Observers() = default;
  ~Observers() override;
  Observers(const Observers&) = delete;

  void add(std::unique_ptr<Observer> observer) { observers_.push_back(std::move(observer)); }

  void started(const RunSize& run) override;
  void trained(const TrainEvent& event) override;
  void evaluated(const EvalEvent& event) override;
  void saved(const SaveEvent& event) override;
  void finished(const RunEnd& end) override;
  void stopped(const RunStop& stop) override;

 private:
  void tell(const std::function<void(Observer&)>& one);

  std::vector<std::unique_ptr<Observer>> observers_;
};

/// Who is told on a rank. Rank 0: the files, where options.output_dir asks for them (run_files.h), and the
/// terminal; a new observer is one line there. Other ranks: nobody. UsageError when the directory cannot be used.
/// `record`: the options as the files are to tell them, planned(). `options` must outlive what is returned.
std::unique_ptr<Observer> make_observers(const Options& options, const Options& record, int rank,
                                         const metrics::RunClaim& claim);

}  // namespace lockstep::train
