#pragma once

// Where events go. One implementation a file: jsonl.h, csv.h, tensorboard.h, progress.h.

#include <memory>
#include <vector>

#include "lockstep/metrics/event.h"

namespace lockstep::metrics {

/// Not thread-safe; rank 0's loop owns its sinks.
class Sink {
 public:
  virtual ~Sink() = default;
  /// Takes an event; when it returns, the kernel has it whole, so a killed process loses
  /// nothing that was written before. Throws Error (naming the file) when it cannot.
  virtual void write(const Event& event) = 0;
};

/// Hands every event to all of its sinks, in their order.
class MultiSink : public Sink {
 public:
  void add(std::unique_ptr<Sink> sink) { sinks_.push_back(std::move(sink)); }
  /// A sink that fails does not keep the event from the others; then the first failure is thrown.
  void write(const Event& event) override;

 private:
  std::vector<std::unique_ptr<Sink>> sinks_;
};

}  // namespace lockstep::metrics
