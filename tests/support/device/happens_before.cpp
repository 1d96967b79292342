#include "tests/support/device/happens_before.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <utility>

namespace lockstep::testing::sim {
namespace {

using Clock = std::vector<std::uint64_t>;  // per line of execution: how many of its operations are over

constexpr std::size_t kHost = 0;

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

std::uint64_t at(const Clock& clock, std::size_t line) { return line < clock.size() ? clock[line] : 0; }

struct Access {
  std::size_t line = 0;
  std::uint64_t time = 0;
  std::size_t entry = 0;
};

bool over(const Access& access, const Clock& clock) { return access.time <= at(clock, access.line); }

// What is known of bytes [key, end): its last write, and each line's last read since.
struct Segment {
  std::uintptr_t end = 0;
  std::optional<Access> write;
  std::vector<Access> reads;
};

// A block that its stream may have again although these uses may not be over.
struct Released {
  std::size_t line = 0;
  std::vector<Access> uses;
};

class Checker {
 public:
  explicit Checker(const std::vector<Entry>& history) : history_(history), clocks_(1) {}

  Report run() {
    for (number_ = 0; number_ < history_.size(); ++number_) look_at(history_[number_]);
    for (const Released& block : released_) reuse(block, std::nullopt);
    return std::move(report_);
  }

 private:
  void look_at(const Entry& entry) {
    switch (entry.kind) {
      case Kind::operation:
        return operate(entry);
      case Kind::allocate:
        return allocate(entry);
      case Kind::release:
        return release(entry);
      case Kind::record_stream:
        recorded_[entry.writes.at(0).begin].insert(line_of(entry.stream));
        return;
      case Kind::record_event:
        events_[entry.event] = asked(line_of(entry.stream));
        return;
      case Kind::wait_event: {
        const Clock event = event_of(entry);
        asked(line_of(entry.stream));
        join(clocks_[line_of(entry.stream)], event);
        return;
      }
      case Kind::event_seen:
        join(clocks_[kHost], event_of(entry));
        return;
      case Kind::synchronize_event:
        ++report_.host_waits[entry.name];
        join(clocks_[kHost], event_of(entry));
        return;
      case Kind::synchronize_stream:
        ++report_.host_waits[entry.name];
        join(clocks_[kHost], clocks_[line_of(entry.stream)]);
        return;
      case Kind::synchronize_device:
        ++report_.host_waits[entry.name];
        for (const auto& [stream, line] : lines_) {
          if (stream.device == entry.stream.device) join(clocks_[kHost], clocks_[line]);
        }
        return;
      case Kind::host_access:
        touch_all(entry, kHost);
        return;
      case Kind::host_forget:
        cut(entry.writes.at(0));
        forget(entry.writes.at(0));
        return;
    }
  }

  void operate(const Entry& entry) {
    const std::size_t line = line_of(entry.stream);
    asked(line);
    touch_all(entry, line);
    if (entry.blocking || entry.staged) ++report_.host_waits[entry.name];
    if (entry.blocking) join(clocks_[kHost], clocks_[line]);
  }

  void touch_all(const Entry& entry, std::size_t line) {
    clocks_[line].resize(std::max(clocks_[line].size(), line + 1));
    const Access access = {line, ++clocks_[line][line], number_};
    for (const Range& range : entry.reads) touch(range, access, false);
    for (const Range& range : entry.writes) touch(range, access, true);
  }

  // An allocation counts as a write by its stream: who uses the block on another has to wait for what the stream did
  // with it before.
  void allocate(const Entry& entry) {
    const std::size_t line = line_of(entry.stream);
    asked(line);
    for (const Released& block : released_) {
      if (block.line == line) reuse(block, number_);
    }
    released_.erase(std::remove_if(released_.begin(), released_.end(),
                                   [line](const Released& block) { return block.line == line; }),
                    released_.end());
    cut(entry.writes.at(0));
    forget(entry.writes.at(0));
    recorded_.erase(entry.writes.at(0).begin);
    touch_all(entry, line);
  }

  void release(const Entry& entry) {
    const Range& range = entry.writes.at(0);
    const std::size_t line = line_of(entry.stream);
    asked(line);
    const std::set<std::size_t> recorded = std::exchange(recorded_[range.begin], {});
    Released block = {line, {}};
    const auto keep = [&](const Access& access) {
      if (access.line == line || recorded.contains(access.line) || over(access, clocks_[line])) return;
      block.uses.push_back(access);
    };
    cut(range);
    for (auto at = segments_.lower_bound(range.begin); at != segments_.end() && at->first < range.end; ++at) {
      if (at->second.write) keep(*at->second.write);
      for (const Access& read : at->second.reads) keep(read);
    }
    forget(range);
    if (!block.uses.empty()) released_.push_back(std::move(block));
  }

  void reuse(const Released& block, std::optional<std::size_t> by) {
    for (const Access& use : block.uses) {
      if (over(use, clocks_[block.line])) continue;
      fault(use.entry, by.value_or(history_.size()),
            words(use.entry) + " uses memory of " + name_of(block.line) + ", which " +
                (by ? "may have it again at " + words(*by) : std::string("may have it again")) +
                ": it was released without record_stream and without an event behind the use");
    }
  }

  void touch(const Range& range, const Access& access, bool writes) {
    if (range.begin >= range.end) return;
    cut(range);
    std::uintptr_t next = range.begin;
    for (auto at = segments_.lower_bound(range.begin); next < range.end; ++at) {
      if (at == segments_.end() || at->first > next) {  // bytes of which nothing is known yet
        const std::uintptr_t end = at == segments_.end() ? range.end : std::min(range.end, at->first);
        at = segments_.emplace_hint(at, next, Segment{.end = end, .write = {}, .reads = {}});
      }
      next = at->second.end;
      touch(at->second, access, writes);
    }
  }

  void touch(Segment& segment, const Access& access, bool writes) {
    const Clock& clock = clocks_[access.line];
    if (segment.write && !over(*segment.write, clock)) conflict(*segment.write, "writes", access, writes);
    if (writes) {
      for (const Access& read : segment.reads) {
        if (!over(read, clock)) conflict(read, "reads", access, true);
      }
      segment.write = access;
      segment.reads.clear();
      return;
    }
    for (Access& read : segment.reads) {
      if (read.line == access.line) {
        read = access;
        return;
      }
    }
    segment.reads.push_back(access);
  }

  void conflict(const Access& before, const char* did, const Access& now, bool writes) {
    if (before.entry == now.entry) return;
    const bool fresh = history_[before.entry].kind == Kind::allocate;
    fault(before.entry, now.entry,
          words(now.entry) + (writes ? " writes" : " reads") + " memory that " + words(before.entry) + " " +
              (fresh ? "has only just given out" : did) + ": nothing makes it wait for that");
  }

  void fault(std::size_t first, std::size_t second, std::string sentence) {
    if (told_.insert({first, second}).second) report_.faults.push_back(std::move(sentence));
  }

  // Segments begin and end where the range does.
  void cut(const Range& range) {
    cut_at(range.begin);
    cut_at(range.end);
  }

  void cut_at(std::uintptr_t address) {
    auto at = segments_.upper_bound(address);
    if (at == segments_.begin()) return;
    --at;
    if (at->first == address || at->second.end <= address) return;
    Segment rest = at->second;
    at->second.end = address;
    segments_.emplace(address, std::move(rest));
  }

  void forget(const Range& range) {
    segments_.erase(segments_.lower_bound(range.begin), segments_.lower_bound(range.end));
  }

  std::size_t line_of(const StreamName& stream) {
    const auto [at, is_new] = lines_.emplace(stream, clocks_.size());
    if (is_new) clocks_.emplace_back();
    return at->second;
  }

  // The host asks a stream for something: behind all that the host knows to be over.
  const Clock& asked(std::size_t line) {
    join(clocks_[line], clocks_[kHost]);
    return clocks_[line];
  }

  // What was recorded before the history began is over for it, and so is an event that was never recorded.
  Clock event_of(const Entry& entry) const {
    const auto found = events_.find(entry.event);
    return found == events_.end() ? Clock() : found->second;
  }

  std::string name_of(std::size_t line) const {
    for (const auto& [stream, number] : lines_) {
      if (number == line) return "stream " + std::to_string(stream.id) + " of sim:" + std::to_string(stream.device);
    }
    return "the host";
  }

  std::string words(std::size_t number) const {
    const Entry& entry = history_[number];
    if (entry.kind == Kind::host_access) return "the host (" + std::to_string(number) + ")";
    const std::string stream =
        "stream " + std::to_string(entry.stream.id) + " of sim:" + std::to_string(entry.stream.device);
    return entry.name + " (" + std::to_string(number) + ") on " + stream;
  }

  const std::vector<Entry>& history_;
  std::size_t number_ = 0;
  std::map<StreamName, std::size_t> lines_;
  std::deque<Clock> clocks_;  // a new line moves no clock that is in use
  std::map<std::uint64_t, Clock> events_;
  std::map<std::uintptr_t, Segment> segments_;
  std::map<std::uintptr_t, std::set<std::size_t>> recorded_;
  std::vector<Released> released_;
  std::set<std::pair<std::size_t, std::size_t>> told_;
  Report report_;
};

}  // namespace

int Report::all_host_waits() const {
  int sum = 0;
  for (const auto& [what, count] : host_waits) sum += count;
  return sum;
}

std::string Report::text() const {
  std::string lines;
  for (const std::string& fault : faults) lines += fault + '\n';
  return lines;
}

Report check(const std::vector<Entry>& history) { return Checker(history).run(); }

}  // namespace lockstep::testing::sim
