#include "lockstep/launch/output/attempt_logs.h"

#include <fcntl.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kTailLines = 20;
constexpr std::size_t kTailBytes = 64 << 10;

// Marks a stream's number in the router until its descriptor is known.
constexpr int kFirstStream = -2;

}  // namespace

AttemptLogs::AttemptLogs(const LogOptions& options, const std::string& run_folder, int attempt, int workers,
                         int first_rank)
    : ranks_(plan_logs(options, run_folder, attempt, workers, first_rank)),
      null_(open("/dev/null", O_WRONLY | O_CLOEXEC)) {
  if (!null_) throw_errno("launcher: /dev/null");
  make_attempt_folders(ranks_);
  for (const RankLogs& rank : ranks_) {
    stdout_.push_back(route(rank.out, 1, rank.prefix, options.stdout_filters));
    stderr_.push_back(route(rank.err, 2, rank.prefix, options.stderr_filters));
  }
  if (streams_.empty()) return;
  router_ = std::make_unique<LogRouter>(streams_);
  for (std::vector<int>* numbers : {&stdout_, &stderr_})
    for (int& number : *numbers)
      if (number <= kFirstStream) number = router_->writer(std::size_t(kFirstStream - number));
}

int AttemptLogs::route(const StreamLog& stream, int number, const std::string& prefix,
                       const std::vector<std::string>& filters) {
  if (stream.sink == StreamLog::Sink::inherited) return -1;
  if (stream.sink == StreamLog::Sink::null) return null_.get();
  streams_.push_back({.file = stream.file,
                      .console = stream.console ? number : -1,
                      .prefix = prefix,
                      .filter_file = stream.filter_file,
                      .filters = stream.filter_file.empty() ? std::vector<std::string>() : filters});
  return kFirstStream - int(streams_.size() - 1);
}

bool AttemptLogs::on_console() const {
  return std::ranges::any_of(streams_, [](const LogStream& stream) { return stream.console >= 0; });
}

void AttemptLogs::close_writers() {
  if (router_) router_->close_writers();
}

bool AttemptLogs::finish(EventLoop& loop, std::chrono::milliseconds deadline, const std::function<bool()>& stopped) {
  return !router_ || router_->finish(loop, deadline, stopped);
}

std::vector<LogTail> AttemptLogs::tails(int rank, bool unseen) const {
  std::vector<LogTail> tails;
  const RankLogs& logs = ranks_[std::size_t(rank)];
  for (const StreamLog* stream : {&logs.out, &logs.err}) {
    if (stream->file.empty() || (unseen && stream->console)) continue;
    LogTail tail{.file = stream->file, .lines = last_lines(stream->file, kTailLines, kTailBytes)};
    if (!tail.lines.empty()) tails.push_back(std::move(tail));
  }
  return tails;
}

}  // namespace lockstep::launch
