#pragma once

// What `lockstep doctor` has to say: one finding for each thing that it looked at.

#include <string>
#include <vector>

namespace lockstep::launch {

struct Finding {
  enum class Level {
    good,
    note,   ///< worth to know; jobs run
    wrong,  ///< jobs fail, or are much slower than they need be
  };
  Level level = Level::good;
  std::string what;    ///< "/dev/shm"
  std::string value;   ///< what was found
  std::string advice;  ///< what to do; empty when it is good
};

/// The findings about one machine, or about two: "node1 -> node2".
struct Examined {
  std::string title;
  std::vector<Finding> findings;
};

/// Whether any of them is wrong.
bool anything_wrong(const std::vector<Examined>& all);

/// A line for each, what to do below it, and a sum at the end. Control characters are shown escaped. Pure.
std::string findings_as_text(const std::vector<Examined>& all);

/// {"wrong": 1, "examined": [{"title": ..., "findings": [{"level", "what", "value", "advice"}, ...]}, ...]}. Bytes that
/// are not UTF-8 become U+FFFD. Pure.
std::string findings_as_json(const std::vector<Examined>& all);

/// What no key protects where several nodes are used; a note.
Finding unprotected();

}  // namespace lockstep::launch
