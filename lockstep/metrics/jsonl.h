#pragma once

// metrics.jsonl: every event, one JSON object a line.

#include <string>

#include "lockstep/metrics/line_file.h"
#include "lockstep/metrics/sink.h"

namespace lockstep::metrics {

/// The event as one line of JSON without its end: {"event":"train","time":…,"step":…}. Numbers
/// are not rounded. JSON knows no NaN: such numbers are the strings "nan", "inf", "-inf".
/// Text that is no UTF-8 has its bad bytes replaced.
std::string json_line(const Event& event);

/// Appends to `path`. Errors: see LineFile, also of what the disk refuses.
class JsonLines : public Sink {
 public:
  explicit JsonLines(std::string path, WhenRefused refused = WhenRefused::throws)
      : file_(LineFile::of_lines(std::move(path))) {
    file_.when_refused(refused);
  }
  void write(const Event& event) override { file_.append(json_line(event) + "\n"); }

 private:
  LineFile file_;
};

}  // namespace lockstep::metrics
