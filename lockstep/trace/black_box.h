#pragma once

// A rank's last collectives, written into a file when its group ends early. Torch-free.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/node.h"
#include "lockstep/base/process_id.h"
#include "lockstep/trace/flight_recorder.h"
#include "lockstep/trace/rank_trace.h"

namespace lockstep::trace {

/// Whose calls they are, and where they go.
struct BoxSettings {
  std::string folder;
  std::size_t capacity = 1000;  ///< how many calls are kept
  std::string run;              ///< the same on all ranks and of no other run
  int attempt = 0;
  int rank = 0;
  int world = 1;
  int first_rank = 0;  ///< of this node
};

/// May be used by any thread. A thread of its own sleeps until the group of `node` fails, so that a rank that computes,
/// or hangs, leaves its file as those do that wait for it. What cannot be written is told on standard error in one
/// line. A SIGTERM that would end the process, of the launcher or of who has lost patience, does so when the file is
/// written. A group that makes room for a node (base/room.h) has not failed.
class BlackBox {
 public:
  /// `node` is that of the rank in the world; it may end before this.
  BlackBox(BoxSettings settings, const base::Node& node);
  ~BlackBox();
  BlackBox(const BlackBox&) = delete;
  BlackBox& operator=(const BlackBox&) = delete;

  FlightRecorder& recorder() { return recorder_; }

  /// Returns the group's number in calls. `ranks` are numbers in the world.
  std::uint32_t add_group(const std::string& name, const std::vector<int>& ranks);

  /// Where this rank is in its step, as it says to its peers.
  std::uint64_t step() const { return words().step.load(std::memory_order_relaxed); }
  const char* phase() const;

  /// Whether the world has ended early, by a failure or not.
  bool is_over() const { return base::is_aborted(page(), generation_); }

  /// Writes the file if the world has failed and no other call has; returns when it is written. Nothing in a forked
  /// child.
  void write_if_over() noexcept;

 private:
  base::ControlPage& page() const { return segment_.control(); }
  base::RankWords& words() const { return page().ranks[settings_.rank - settings_.first_rank]; }
  bool has_failed() const;
  RankTrace trace();
  Failure failure() const;
  void write(bool is_asked) noexcept;
  void watch();
  void handle_end_signal();
  static void on_end_signal(int signal);

  const BoxSettings settings_;
  const base::Segment segment_;  // a mapping of its own
  const std::uint32_t generation_;
  const int process_ = base::process_id();
  FlightRecorder recorder_;
  std::mutex groups_mutex_;
  std::vector<TracedGroup> groups_;
  std::mutex file_mutex_;
  bool written_ = false;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> asked_{false};  ///< to end, by SIGTERM
  std::atomic<bool> ended_{false};  ///< the watcher
  std::unique_ptr<std::thread> watcher_;
};

}  // namespace lockstep::trace
