#pragma once

// What a run has written, read back: metrics.jsonl of its directory (docs/design/metrics.md).

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::page {

/// A number at a step; not a number where none was (NaN, infinities).
struct Point {
  double step = 0;
  double value = 0;
};

using Points = std::vector<Point>;

/// One start of the job.
struct Start {
  std::int64_t restart_count = 0;
  std::int64_t first_step = 1;
  double time = 0;                  ///< seconds since 1970
  std::int64_t skipped_before = 0;  ///< checkpoints that earlier starts had left out, as their last one says
};

/// What ended one start of the job, as the next one tells it.
struct Fault {
  std::string cause;  ///< one line; empty: not known
  double time = 0;    ///< when it was told
  double lost = 0;    ///< seconds until the job went on; not a number when that is not known
};

/// A checkpoint that was written.
struct Save {
  std::int64_t step = 0;
  std::int64_t skipped = 0;  ///< left out until then, over all starts of the job
};

/// A sample that a classifier took for another class.
struct Mistake {
  std::int64_t sample = 0;  ///< its number in the set that was evaluated on
  std::int64_t truth = 0, prediction = 0;
  double share = 0;     ///< what the softmax gave the prediction
  std::string file;     ///< empty: the set has none
  std::string picture;  ///< a PNG file in base64; empty: there is none
};

/// What a classifier took the samples of an evaluation for.
struct Answers {
  struct Cell {
    std::int64_t truth = 0, prediction = 0, count = 0;
  };
  std::int64_t step = 0;
  std::vector<std::string> classes;
  std::vector<Cell> cells;  ///< those of the confusion matrix that are not 0; none: there are too many classes
  struct OfClass {
    std::int64_t samples = 0, right = 0;
  };
  std::vector<OfClass> by_class;  ///< one for each class; none: an older run
  std::vector<Mistake> mistakes;  ///< the surest
};

struct RunRecord {
  std::string name;                                        ///< the last part of its path
  std::vector<std::pair<std::string, std::string>> facts;  ///< fields of its first start, in their order
  std::map<std::string, Points> train, eval;               ///< by field, steps rising; of a step told twice the later
  std::vector<Start> starts;
  std::vector<Fault> faults;
  std::vector<Save> saves;
  std::optional<Answers> answers;           ///< of the last evaluation, if it was of a classifier
  std::map<std::string, double> best_eval;  ///< of the best checkpoint, if it was evaluated at the end
  bool done = false;                        ///< it came to its end
  std::int64_t steps = 0;                   ///< the last one that was told of
  double seconds = 0;                       ///< from its first event to its last
  std::string weights_hash;                 ///< when done

  /// The last value of a field; not a number when there is none.
  static double last(const Points& points);
};

/// Reads a run directory, or its metrics.jsonl, and the pictures of its last mistakes (mistakes.json beside it, where
/// there is one of that evaluation). A last line without its end is one that is being written: it is left
/// out. UsageError, "file:line: ...", for a line that is no event; without a line when the file cannot be read, or has
/// no event; and for a mistakes.json that is none.
RunRecord read_run(const std::string& path);

}  // namespace lockstep::page
