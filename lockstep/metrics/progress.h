#pragma once

// What a person sees while a run goes on: on a terminal one line that is rewritten, in a
// file or pipe plain lines. The texts are pure functions of the events.

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/outlet.h"
#include "lockstep/metrics/sink.h"

namespace lockstep::metrics {

/// What the events do not say about the run as a whole.
struct RunLength {
  std::int64_t steps = 0;             ///< steps of the whole run
  std::int64_t samples_per_step = 0;  ///< the global batch; 0: not known, and nothing is said of the time that is left
  std::int64_t epochs = 0;            ///< passes of the whole run; 0: not known, not shown
  const char* unit = "samples";       ///< what a rate counts, as in "12345 images/s"
};

/// "0:42", "12:05", "1:02:03", "2d 03:04:05"; seconds are rounded up. "?" when not finite or negative.
std::string duration_text(double seconds);

/// Train: "epoch 1/10  step 100/600  loss 0.3456  lr 0.001  accuracy 97.10 %  12345 images/s  ETA 0:42  data wait 3 %
/// 812 MiB", on one line; the other kinds, but start and answers (""), have a line of their own. `accuracy` is that of
/// the last evaluation, where there was one. Without samples_per_second nothing is said of speed and time, with it and
/// without the length of the run in samples nothing of time, and so of what else the event lacks. Fields:
/// docs/design/metrics.md. Numbers are rounded here only. Throws Error when the event lacks one that it must have.
std::string progress_text(const Event& event, const RunLength& run, const std::optional<double>& accuracy = {});

/// The bytes that show `text` on a terminal `columns` wide (0: unknown): a train line
/// replaces the line the cursor is in, every other one stays.
std::string terminal_text(Kind kind, const std::string& text, int columns);

/// Writes to a descriptor that it does not own, and never waits while the run goes on: a train line that a terminal
/// does not take at once (Ctrl-S, a stalled ssh session) is dropped. The other lines are results: they are kept, in
/// order, and written as soon as there is room. A failure to write is no failure of the run: nobody may be looking any
/// more.
class Progress : public Sink {
 public:
  /// Rewrites its line when `fd` is a terminal.
  Progress(int fd, RunLength run);
  /// Leaves the cursor at the start of a line, and waits for what is left: after `done`, when no peer waits any more,
  /// base::kPatience; without it the run has failed, and its peers wait: a second.
  ~Progress() override;
  void write(const Event& event) override;

 private:
  const int fd_;
  base::Outlet outlet_;
  const RunLength run_;
  const bool terminal_;
  std::optional<double> accuracy_;  ///< of the last evaluation
  bool line_open_ = false;          ///< the cursor is in a train line
  bool done_ = false;
};

}  // namespace lockstep::metrics
