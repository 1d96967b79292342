#pragma once

// The folder of one run (--output-dir): config.json, metrics.jsonl, metrics.csv and a
// TensorBoard event file. log/ and checkpoints/ appear with their first file and are not
// touched here.

#include <string>
#include <string_view>

namespace lockstep::metrics {

enum class IfUsed {
  refuse,
  overwrite,
  go_on,  ///< the job was started again: it appends to its own files
};

/// A folder that is ready for the files of a new run.
class RunDirectory {
 public:
  /// Makes `path` with its parents and writes config.json, whole or not at all. A folder
  /// is used when it holds config.json or metrics.jsonl; then IfUsed::overwrite removes the
  /// files that a run made (is_run_file()) and nothing else, and IfUsed::go_on leaves all as it
  /// is, when its config.json is this one.
  /// Throws UsageError naming the path when it is used, no folder, or cannot be written;
  /// nothing has been removed then.
  static RunDirectory create(const std::string& path, std::string_view config_json, IfUsed if_used);

  const std::string& path() const { return path_; }
  std::string metrics_jsonl() const { return path_ + "/metrics.jsonl"; }
  std::string metrics_csv() const { return path_ + "/metrics.csv"; }

 private:
  explicit RunDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// Whether a file of this name, directly in a run directory, was made by a run.
bool is_run_file(std::string_view name);

}  // namespace lockstep::metrics
