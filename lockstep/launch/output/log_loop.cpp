#include "lockstep/launch/output/log_loop.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kRead = 64 << 10;
// From the agent's death to the router's end; workers die with the agent and write no more.
constexpr std::chrono::milliseconds kOrphaned{500};

bool same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

base::Outlet open_filter(const std::string& path, Files files) {
  const int how = files == Files::anew ? O_TRUNC : O_APPEND;
  base::UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0644));
  if (!fd)
    throw UsageError("cannot write the log '" + path + "': " + std::strerror(errno) +
                     "; name a folder with --log-dir that can be written to");
  return base::Outlet::file(std::move(fd));
}

}  // namespace

LogLoop::LogLoop(const std::vector<LogStream>& streams, std::vector<base::UniqueFd> pipes, Files files)
    : streams_(streams), pipes_(std::move(pipes)), buffer_(kRead, '\0') {
  for (const LogStream& stream : streams_) files_.emplace_back(stream.file, files);
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const LogStream& stream = streams_[i];
    if (stream.filter_file.empty()) continue;
    auto filter = std::find_if(filters_.begin(), filters_.end(),
                               [&](const Follower& other) { return other.name() == stream.filter_file; });
    if (filter == filters_.end()) {
      filters_.emplace_back(open_filter(stream.filter_file, files), stream.filter_file);
      filter = std::prev(filters_.end());
    }
    filter->follow(
        {.file = &files_[i], .prefix = stream.prefix, .filters = stream.filters, .shown = files_[i].whole()});
  }
}

void LogLoop::attach_consoles() {
  consoles_.emplace_back(base::Outlet::console(STDERR_FILENO), "");
  const auto wanted = [](const LogStream& stream) { return stream.console == STDOUT_FILENO; };
  const bool uses_stdout = std::any_of(streams_.begin(), streams_.end(), wanted);
  // Two ways to one terminal or pipe are one console, else lines would meet in the middle.
  if (uses_stdout && !same_file(STDOUT_FILENO, STDERR_FILENO))
    consoles_.emplace_back(base::Outlet::console(STDOUT_FILENO), "");
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const LogStream& stream = streams_[i];
    if (stream.console < 0) continue;
    Follower& console = stream.console == STDOUT_FILENO ? consoles_.back() : consoles_.front();
    console.follow({.file = &files_[i], .prefix = stream.prefix, .filters = {}, .shown = files_[i].whole()});
  }
}

std::vector<int> LogLoop::descriptors() const {
  std::vector<int> all;
  for (const base::UniqueFd& pipe : pipes_) all.push_back(pipe.get());
  for (const LogFile& file : files_) all.push_back(file.fd());
  for (const Follower& filter : filters_) all.push_back(filter.fd());
  for (const Follower& console : consoles_) all.push_back(console.fd());
  return all;
}

bool LogLoop::run(int control) {
  while (!over()) wait_and_work(control);
  if (stage_ == Stage::orphaned) drain();
  finish_filters();
  return complete();
}

void LogLoop::wait_and_work(int control) {
  std::vector<pollfd> polled;
  std::vector<Follower*> followers;
  auto wake = deadline_;
  polled.push_back({.fd = stage_ == Stage::orphaned ? -1 : control, .events = POLLIN, .revents = 0});
  for (const base::UniqueFd& pipe : pipes_) polled.push_back({.fd = pipe.get(), .events = POLLIN, .revents = 0});
  const auto now = Clock::now();
  each_follower([&](Follower& follower) {
    if (!follower.pending()) return;
    if (follower.rests_until() > now) {
      wake = std::min(wake, follower.rests_until());
      return;
    }
    polled.push_back({.fd = follower.fd(), .events = POLLOUT, .revents = 0});
    followers.push_back(&follower);
  });
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - now).count();
  const int timeout = wake == Clock::time_point::max() ? -1 : int(std::clamp<long long>(left, 0, 60'000));
  if (poll(polled.data(), polled.size(), timeout) <= 0) return;

  for (std::size_t i = 0; i < pipes_.size(); ++i)
    if (polled[1 + i].revents != 0) read_pipe(i, kRead);
  for (std::size_t i = 0; i < followers.size(); ++i)
    if (polled[1 + pipes_.size() + i].revents != 0) followers[i]->step();
  if (polled[0].revents != 0) on_control(control);
  tell_errors();
  forget();
}

void LogLoop::on_control(int control) {
  char word = 0;
  const ssize_t got = read(control, &word, 1);
  if (got < 0 && errno == EINTR) return;
  if (got == 1) {
    drain();
    finish_filters();
    stage_ = Stage::finishing;
    send(control, &word, 1, MSG_NOSIGNAL);
    return;
  }
  stage_ = Stage::orphaned;
  deadline_ = Clock::now() + kOrphaned;
}

// False when there is no more for now.
bool LogLoop::read_pipe(std::size_t stream, std::size_t most) {
  base::UniqueFd& pipe = pipes_[stream];
  if (!pipe) return false;
  const ssize_t got = read(pipe.get(), buffer_.data(), std::min(most, buffer_.size()));
  if (got > 0) files_[stream].append(std::string_view(buffer_).substr(0, std::size_t(got)));
  if (got > 0 || (got < 0 && errno == EINTR)) return true;
  if (got < 0 && errno == EAGAIN) return false;
  pipe = base::UniqueFd();
  files_[stream].end();
  return false;
}

// No more than the pipes hold: a process that was left behind may write on for ever.
void LogLoop::drain() {
  for (std::size_t i = 0; i < pipes_.size(); ++i) {
    if (!pipes_[i]) continue;
    const int capacity = std::max(fcntl(pipes_[i].get(), F_GETPIPE_SZ), int(kRead));
    for (std::size_t budget = std::size_t(capacity) / kRead + 1; budget > 0 && read_pipe(i, kRead); --budget) {
    }
  }
  end_files();
}

void LogLoop::end_files() {
  std::uint64_t missing = 0;
  const LogFile* first = nullptr;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    pipes_[i] = base::UniqueFd();
    files_[i].end();
    if (files_[i].unnoted() == 0) continue;
    missing += files_[i].unnoted();
    if (first == nullptr) first = &files_[i];
  }
  if (missing == 0) return;
  tell_errors();
  consoles_.front().say("lockstep: " + std::to_string(missing) + " bytes of output are missing, at the end of " +
                        first->path() + (missing > first->unnoted() ? " and others" : "") + " (" +
                        std::strerror(first->error()) + ")\n");
}

// Files too, and as fast.
void LogLoop::finish_filters() {
  for (Follower& filter : filters_)
    while (filter.pending() && filter.error() == 0) filter.step();
}

void LogLoop::tell_errors() {
  for (const LogFile& file : files_) {
    if (told_file_ || file.error() == 0) continue;
    told_file_ = true;
    consoles_.front().say("lockstep: cannot write " + (file.path().empty() ? "in TMPDIR" : file.path()) + ": " +
                          std::strerror(file.error()) + "; output is lost until it can be written again\n");
  }
  for (const Follower& filter : filters_) {
    if (told_filter_ || filter.error() == 0) continue;
    told_filter_ = true;
    consoles_.front().say("lockstep: cannot write " + filter.name() + ": " + std::strerror(filter.error()) + "\n");
  }
}

void LogLoop::forget() {
  for (LogFile& file : files_) {
    off_t shown = file.whole();
    each_follower([&](const Follower& follower) { shown = std::min(shown, follower.shown(file)); });
    file.forget(shown);
  }
}

bool LogLoop::idle() const {
  const auto done = [](const Follower& follower) { return !follower.pending() || follower.error() != 0; };
  return std::all_of(consoles_.begin(), consoles_.end(), done) && std::all_of(filters_.begin(), filters_.end(), done);
}

bool LogLoop::over() const {
  if (stage_ == Stage::running) return false;
  const bool ended = std::none_of(pipes_.begin(), pipes_.end(), [](const base::UniqueFd& pipe) { return bool(pipe); });
  return (ended && idle()) || Clock::now() >= deadline_;
}

bool LogLoop::complete() const {
  const auto good = [](const Follower& follower) { return !follower.pending() && follower.error() == 0; };
  return std::all_of(consoles_.begin(), consoles_.end(), good) && std::all_of(filters_.begin(), filters_.end(), good) &&
         std::all_of(files_.begin(), files_.end(), [](const LogFile& file) { return file.missing() == 0; });
}

template <class Call>
void LogLoop::each_follower(Call call) {
  for (Follower& console : consoles_) call(console);
  for (Follower& filter : filters_) call(filter);
}

}  // namespace lockstep::launch
