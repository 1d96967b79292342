#pragma once

// A file that chrome://tracing and ui.perfetto.dev show: what each rank did when, one row per rank, and one more for
// the thread that sends waves.
//
// All ranks of a job append whole lines to one file, a JSON array of Chrome's trace events. Times are those of the
// machine's steady clock, which its processes share; ranks of other machines count from the barrier at the start on. A
// job that is killed leaves the array open, which viewers accept.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/unique_fd.h"

namespace lockstep::parallel {

class Timeline {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Appends to `path`, which is there. `shift` is added to all times. Error naming the file.
  Timeline(std::string path, int rank, std::chrono::nanoseconds shift);
  /// Writes what is left, but no end of the array.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// A phase of the step that goes on; row 0 of a rank is what its program does.
  void add(std::string_view name, Time begin, Time end, int row = 0);
  /// What holds from now on, in the row of this rank: no quotes, backslashes or control characters.
  void note(std::string_view text);
  /// Hands the phases of step `step` to the kernel. A file that cannot be written to ends the timeline, with a line on
  /// standard error; training goes on.
  void end_step(std::uint64_t step);

  /// Makes `path` anew, the array open. Error naming the file.
  static void begin(const std::string& path);
  /// Ends the array, when all ranks have written what they have. Error naming the file.
  static void end(const std::string& path);

 private:
  void write();

  std::string path_;
  int rank_;
  std::chrono::nanoseconds shift_;
  base::UniqueFd fd_;
  std::string lines_;   ///< of steps that ended
  std::string phases_;  ///< of the one that goes on; "STEP" is its number
};

}  // namespace lockstep::parallel
