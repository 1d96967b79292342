#pragma once

// The files of a run (docs/design/metrics.md): config.json, metrics.jsonl, metrics.csv and a TensorBoard event file.

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/metrics/mistakes_file.h"
#include "lockstep/metrics/run_directory.h"
#include "lockstep/metrics/sink.h"
#include "lockstep/metrics/tensorboard.h"

namespace lockstep::metrics {

/// Writes config.json at once and every event into the other files. They share their disk with the checkpoints, so what
/// it refuses once they are open is left out and told once per file (WhenRefused::leaves_out). The folder is this
/// process's while the object lives; the files of an earlier attempt of the same run are continued.
class RunFiles final : public Sink {
 public:
  /// Errors: see RunDirectory::create().
  RunFiles(const std::string& folder, std::string_view config_json, const RunClaim& claim);
  RunFiles(const RunFiles&) = delete;

  void write(const Event& event) override { sinks_.write(event); }

  /// Replaces mistakes.json, whole or not at all, and shows the pictures in TensorBoard as mistakes/1 and so on. Where
  /// that is refused the file stays as it was, which is told once.
  void show_mistakes(std::int64_t step, const std::vector<MistakePicture>& pictures);

  /// The event file, for what is no event. Valid as long as the object.
  TensorBoard& tensorboard() { return *tensorboard_; }

 private:
  RunDirectory directory_;  // its lock
  MultiSink sinks_;
  TensorBoard* tensorboard_ = nullptr;  // one of the sinks
  bool is_told_ = false;                // that mistakes.json could not be replaced
};

}  // namespace lockstep::metrics
