#pragma once

// The doctor on another host or node, as the one that asks sees it: lines in both directions (peer.h), whatever carries
// them.

#include <chrono>
#include <optional>
#include <string>

namespace lockstep::launch {

class OtherDoctor {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  OtherDoctor() = default;
  virtual ~OtherDoctor() = default;
  OtherDoctor(const OtherDoctor&) = delete;
  OtherDoctor& operator=(const OtherDoctor&) = delete;

  /// What stands behind `beginning` in the first line that begins so; others are skipped, as shells greet. Throws Error
  /// with its last words when there is none before `deadline`.
  std::string find(const std::string& beginning, TimePoint deadline);

  /// Sends a line.
  void send(const std::string& line, TimePoint deadline);

  /// Sends `line`; what stands behind `beginning` in the answer. Throws Error, also with what it says is wrong.
  std::string ask(const std::string& line, const std::string& beginning, TimePoint deadline);

 protected:
  /// The next line; nothing when it has ended, or says nothing before the deadline.
  virtual std::optional<std::string> next(TimePoint deadline) = 0;
  /// Whether it takes the line.
  virtual bool write(const std::string& line, TimePoint deadline) = 0;
  /// What it has said of why it cannot go on, in one line; may be empty.
  virtual std::string last_words() const { return ""; }

 private:
  [[noreturn]] void complain(const std::string& why) const;
};

}  // namespace lockstep::launch
