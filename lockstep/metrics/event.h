#pragma once

// What a run reports: one value type for every line of metrics.jsonl. The fields of each
// kind are listed in docs/design/metrics.md, which is the reference.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::metrics {

enum class Kind { start, train, eval, answers, checkpoint, fault, done };

/// "start", "train", …
const char* to_string(Kind kind);

/// A number, a text, or a list of either.
using Value = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>,
                           std::vector<std::string>>;

/// A kind, the time, and fields in the order in which they are written. A plain value.
struct Event {
  Kind kind = Kind::start;
  double time = 0;  ///< seconds since 1970, UTC
  std::vector<std::pair<std::string, Value>> fields;

  /// The field's value; nullptr when there is none.
  const Value* find(const std::string& name) const;
  /// The field as a number (integers converted). Throws Error when it is missing or a
  /// string: sinks need it, so the writer of the event is wrong.
  double number(const std::string& name) const;
  /// The field as an integer; throws Error when it is anything else.
  std::int64_t integer(const std::string& name) const;
  /// The field as text; throws Error when it is no string.
  const std::string& text(const std::string& name) const;
};

/// Seconds since 1970, UTC.
double seconds_now();

/// The shortest decimal that reads back as exactly `value`; "nan", "inf", "-inf".
std::string shortest(double value);

}  // namespace lockstep::metrics
