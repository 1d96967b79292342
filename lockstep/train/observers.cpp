#include "lockstep/train/observers.h"

#include <exception>

#include "lockstep/train/run_files.h"
#include "lockstep/train/terminal.h"

namespace lockstep::train {

Observers::~Observers() {
  while (!observers_.empty()) observers_.pop_back();
}

void Observers::started(const RunSize& run) {
  tell([&](Observer& observer) { observer.started(run); });
}

void Observers::trained(const TrainEvent& event) {
  tell([&](Observer& observer) { observer.trained(event); });
}

void Observers::evaluated(const EvalEvent& event) {
  tell([&](Observer& observer) { observer.evaluated(event); });
}

void Observers::saved(const SaveEvent& event) {
  tell([&](Observer& observer) { observer.saved(event); });
}

void Observers::finished(const RunEnd& end) {
  tell([&](Observer& observer) { observer.finished(end); });
}

void Observers::stopped(const RunStop& stop) {
  tell([&](Observer& observer) { observer.stopped(stop); });
}

void Observers::tell(const std::function<void(Observer&)>& one) {
  std::exception_ptr first;
  for (const std::unique_ptr<Observer>& observer : observers_) {
    try {
      one(*observer);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

std::unique_ptr<Observer> make_observers(const Options& options, const Options& record, int rank,
                                         const metrics::RunClaim& claim) {
  auto all = std::make_unique<Observers>();
  if (rank != 0) return all;
  if (!options.output_dir.empty()) all->add(std::make_unique<RunFiles>(options, record, claim));
  all->add(std::make_unique<Terminal>(options));
  return all;
}

}  // namespace lockstep::train
