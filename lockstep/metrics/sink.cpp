#include "lockstep/metrics/sink.h"

#include <exception>

namespace lockstep::metrics {

void MultiSink::write(const Event& event) {
  std::exception_ptr first;
  for (const std::unique_ptr<Sink>& sink : sinks_) {
    try {
      sink->write(event);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::metrics
