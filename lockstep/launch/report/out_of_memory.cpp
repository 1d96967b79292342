#include "lockstep/launch/report/out_of_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <string_view>

#include "lockstep/base/text.h"

namespace lockstep::launch {
namespace {

constexpr std::string_view kKilled = "Killed process ";
constexpr std::string_view kInGroup = "Memory cgroup out of memory";
constexpr std::string_view kLimit = "memory: usage ";  // "memory: usage 32768kB, limit 32768kB, failcnt 24"
constexpr std::size_t kMostLog = 64 << 10;
constexpr std::chrono::milliseconds kLogDelay{50};

// The kernel's numbers of processes are ours in its first namespace only.
bool kernel_numbers_are_ours() {
  char text[64] = {};
  return readlink("/proc/self/ns/pid", text, sizeof text - 1) > 0 && std::string_view(text) == "pid:[4026531836]";
}

std::uint64_t rise(const std::optional<std::uint64_t>& before, const std::optional<std::uint64_t>& after) {
  return before && after && *after > *before ? *after - *before : 0;
}

std::string sentence(bool by_limit, const std::optional<std::uint64_t>& limit) {
  const std::string what = "out of memory: the kernel killed it (";
  if (!by_limit) return what + "the machine is out of memory)";
  return what + "memory limit of its control group" + (limit ? ": " + base::size_text(*limit) : "") + ")";
}

std::optional<std::uint64_t> limit_in(const std::string& line) {
  unsigned long long kib = 0;
  const std::size_t at = line.find(kLimit);
  if (at == std::string::npos || std::sscanf(line.c_str() + at, "memory: usage %*ukB, limit %llukB", &kib) != 1)
    return std::nullopt;
  return std::uint64_t(kib) << 10;
}

// The kernel's word about this very process. A report ends with its line "Killed process".
std::optional<std::string> told_by_log(const std::string& log, int pid, std::optional<std::uint64_t> limit) {
  const std::string killed = std::string(kKilled) + std::to_string(pid) + " ";
  std::istringstream lines(log);
  bool in_group = false;
  std::optional<std::uint64_t> told_limit;
  for (std::string line; std::getline(lines, line);) {
    in_group = in_group || line.find(kInGroup) != std::string::npos;
    if (const auto kib = limit_in(line)) told_limit = kib;
    if (line.find(killed) != std::string::npos) return sentence(in_group, told_limit ? told_limit : limit);
    if (line.find(kKilled) == std::string::npos) continue;
    in_group = false;
    told_limit.reset();
  }
  return std::nullopt;
}

bool matters(std::string_view record) {
  return std::ranges::any_of(std::array{kKilled, kInGroup, kLimit},
                             [&](std::string_view words) { return record.find(words) != std::string_view::npos; });
}

}  // namespace

std::uint64_t untold_kills(const OutOfMemoryEvidence& evidence) {
  const std::uint64_t counted = std::max(rise(evidence.before.machine_kills, evidence.after.machine_kills),
                                         rise(evidence.before.group_kills, evidence.after.group_kills));
  std::uint64_t told = 0;
  const std::string log = evidence.kernel_log.value_or("");
  for (std::size_t at = log.find(kKilled); at != std::string::npos; at = log.find(kKilled, at + 1)) ++told;
  return counted > told ? counted - told : 0;
}

std::optional<std::string> explain_kill(const OutOfMemoryEvidence& evidence, int pid, int signal) {
  if (signal != SIGKILL) return std::nullopt;
  if (auto told = told_by_log(evidence.kernel_log.value_or(""), pid, evidence.limit)) return told;
  if (untold_kills(evidence) == 0) return std::nullopt;
  const bool group_knows = evidence.before.group_kills && evidence.after.group_kills;
  if (group_knows && rise(evidence.before.group_kills, evidence.after.group_kills) == 0) return std::nullopt;
  return sentence(evidence.after.group_was_full, evidence.limit);
}

OutOfMemoryWatch::OutOfMemoryWatch() {
  if (kernel_numbers_are_ours()) log_ = base::UniqueFd(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  reset();
}

void OutOfMemoryWatch::reset() {
  told_.clear();
  // Before the counters: a kill in between is then told, not untold.
  if (log_ && lseek(log_.get(), 0, SEEK_END) < 0) log_ = base::UniqueFd();
  before_ = base::out_of_memory_counts();
}

void OutOfMemoryWatch::read_log() {
  std::array<char, 8192> record;  // one per read; the kernel's longest fits
  constexpr int most = 1 << 16;   // a log that is written faster than read must not hold us
  for (int count = 0; count < most; ++count) {
    const ssize_t length = read(log_.get(), record.data(), record.size());
    if (length < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: overwritten, the next one follows
    if (length <= 0) return;
    const std::string_view text(record.data(), std::size_t(length));
    if (matters(text)) told_ += text;
    if (told_.size() > kMostLog) told_.erase(0, told_.find('\n', told_.size() - kMostLog) + 1);
  }
}

// The machine's counter takes in the kills of all control groups: when it stands where it stood, there
// is nothing to look for, and a restart need not wait for the search.
bool OutOfMemoryWatch::nobody_was_killed() const {
  return before_.machine_kills && base::machine_out_of_memory_kills() == before_.machine_kills;
}

std::optional<std::string> OutOfMemoryWatch::explain(int pid, int signal) {
  if (signal != SIGKILL || nobody_was_killed()) return std::nullopt;
  OutOfMemoryEvidence evidence{before_, base::out_of_memory_counts(), {}, {}};
  for (const base::MemoryGroup& group : base::limited_memory_groups())
    evidence.limit = std::min(evidence.limit.value_or(group.limit), group.limit);
  if (!log_) return explain_kill(evidence, pid, signal);
  // The kernel counts a kill, carries it out, and logs it last.
  const auto deadline = std::chrono::steady_clock::now() + kLogDelay;
  for (;;) {
    read_log();
    evidence.kernel_log = told_;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (untold_kills(evidence) == 0 || left.count() <= 0) break;
    pollfd more{log_.get(), POLLIN, 0};
    poll(&more, 1, int(left.count()));
  }
  return explain_kill(evidence, pid, signal);
}

}  // namespace lockstep::launch
