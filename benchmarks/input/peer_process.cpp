#include "benchmarks/input/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "benchmarks/input/peer_script.h"
#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

constexpr int kTimeoutMilliseconds = 120'000;

struct Pipe {
  base::UniqueFd read, write;
};

Pipe make_pipe() {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("bench input: pipe");
  return {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
}

// In a process group of its own, so that its loader's workers can be ended with it.
pid_t start(const std::string& python, const std::string& config, int input, int output) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const std::array<const char*, 5> arguments = {python.c_str(), "-c", kPeerScript, config.c_str(), nullptr};
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, python.c_str(), &files, &attributes, const_cast<char* const*>(arguments.data()), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw UsageError("bench input: cannot execute '" + python + "': " + std::strerror(error));
  return pid;
}

}  // namespace

PeerProcess::PeerProcess(const std::string& python, const InputCase& input, const InputOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);  // a peer that has ended is found when its answer is read
  Pipe commands = make_pipe(), answers = make_pipe();
  const nlohmann::json config = {
      {"data_path", options.data_path},   {"kind", input.kind},        {"in_memory", options.in_memory},
      {"transforms", input.transforms},   {"mean", input.mean},        {"std", input.std},
      {"batch_size", options.batch_size}, {"workers", options.workers}};
  pid_ = start(python, config.dump(), commands.read.get(), answers.write.get());
  commands_ = std::move(commands.write);
  answers_ = std::move(answers.read);
  answers.write = {};
  try {
    const nlohmann::json hello = nlohmann::json::parse(read_line());
    for (const nlohmann::json& contender : hello.at("contenders"))
      contenders_.push_back({contender.at("name"), contender.at("kind")});
    about_ = hello.at("about");
  } catch (...) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    throw;
  }
}

PeerProcess::~PeerProcess() {
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

double PeerProcess::seconds(std::size_t number, std::int64_t samples) {
  const std::string command = std::to_string(number) + " " + std::to_string(samples) + "\n";
  if (write(commands_.get(), command.data(), command.size()) != ssize_t(command.size())) {
    throw Error("bench input: the peer has ended");
  }
  return std::stod(read_line());
}

std::string PeerProcess::read_line() {
  while (unread_.find('\n') == std::string::npos) {
    pollfd ready{.fd = answers_.get(), .events = POLLIN, .revents = 0};
    const int count = poll(&ready, 1, kTimeoutMilliseconds);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw Error("bench input: no answer from the peer in 120 s");
    std::array<char, 4096> bytes;
    const ssize_t got = read(answers_.get(), bytes.data(), bytes.size());
    if (got <= 0) throw UsageError("bench input: the peer ended without an answer: its Python needs torchvision");
    unread_.append(bytes.data(), std::size_t(got));
  }
  const std::size_t end = unread_.find('\n');
  std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return line;
}

}  // namespace lockstep::bench
