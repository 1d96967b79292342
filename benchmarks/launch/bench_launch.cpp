// lockstep-bench-launch (lockstep bench launch): how long our own commands take to start and end. Beside torchrun and
// mpirun: benchmarks/launch/launch.py.

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>

#include "benchmarks/support/program.h"
#include "benchmarks/support/statistics.h"
#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/flags/values.h"

namespace {

using namespace lockstep;
using namespace lockstep::bench;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kDeadline{60};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A command and what it writes to standard output. It ends with this object at the latest.
class Command {
 public:
  explicit Command(const std::vector<std::string>& words) : name_(words.front()) {
    std::array<int, 2> ends;
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("bench launch: pipe");
    output_ = base::UniqueFd(ends[0]);
    const base::UniqueFd write(ends[1]);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, write.get(), STDOUT_FILENO);
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const int error = posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) throw Error("bench launch: cannot execute '" + name_ + "': " + std::strerror(error));
  }
  ~Command() {
    if (pid_ < 0) return;
    kill(pid_, SIGTERM);  // the launcher ends its workers
    waitpid(pid_, nullptr, 0);
  }
  Command(const Command&) = delete;

  /// Returns when a line with `text` has come out, or at the end of the output when it is empty.
  void read_until(const std::string& text) {
    const Clock::time_point start = Clock::now();
    std::string seen;
    for (;;) {
      if (!text.empty() && seen.find(text) != std::string::npos) return;
      pollfd ready{.fd = output_.get(), .events = POLLIN, .revents = 0};
      if (seconds_since(start) > double(kDeadline.count())) throw Error("bench launch: no end of '" + name_ + "'");
      if (poll(&ready, 1, 1000) <= 0) continue;
      std::array<char, 4096> bytes;
      const ssize_t got = read(output_.get(), bytes.data(), bytes.size());
      if (got <= 0 && text.empty()) return;
      if (got <= 0) throw Error("bench launch: '" + name_ + "' ended without '" + text + "'");
      seen.append(bytes.data(), std::size_t(got));
    }
  }

  void wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw Error("bench launch: '" + name_ + "' failed");
  }

 private:
  std::string name_;
  pid_t pid_ = -1;
  base::UniqueFd output_;
};

double to_the_end(const std::vector<std::string>& words) {
  const Clock::time_point start = Clock::now();
  Command command(words);
  command.read_until("");
  command.wait();
  return seconds_since(start);
}

double to_first_step(const std::vector<std::string>& words) {
  const Clock::time_point start = Clock::now();
  Command command(words);
  command.read_until("step 1/1");
  const double took = seconds_since(start);
  command.read_until("");
  command.wait();
  return took;
}

void print(const char* title, int rounds, const std::function<double()>& measure) {
  measure();  // caches
  std::vector<double> seconds;
  seconds.reserve(std::size_t(rounds));
  for (int round = 0; round < rounds; ++round) seconds.push_back(measure());
  const Spread spread = spread_of(seconds);
  std::printf("%-52s %10.2f %10.2f %10.2f\n", title, 1e3 * spread.median, 1e3 * spread.p10, 1e3 * spread.p90);
  std::fflush(stdout);
}

flags::Table table_of(int& rounds, int& processes) {
  return {.usage = "lockstep bench launch [options]",
          .about = "How long our commands take to start.\n",
          .groups = {
              {"",
               {{"--rounds", flags::integer(rounds, 1, 1'000'000), "turns of each; ten times as many of the quick one"},
                {"-n, --nproc-per-node", flags::integer(processes, 1, 64), "processes"}}}}};
}

void measure(int rounds, const std::string& processes) {
  const std::string folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  std::printf("%-52s %10s %10s %10s\n", "", "median ms", "p10 ms", "p90 ms");
  print("lockstep run, workers that do nothing, to its end", 10 * rounds, [&] {
    return to_the_end({folder + "/lockstep", "run", "-n", processes, folder + "/lockstep-bench-worker"});
  });
  print("lockstep run, workers that load libtorch, to its end", rounds, [&] {
    return to_the_end({folder + "/lockstep", "run", "-n", processes, folder + "/lockstep-trainer", "--help"});
  });
  print("lockstep train, drawn digits, to its first step", rounds, [&] {
    return to_first_step({folder + "/lockstep", "train", "-n", processes, "--channels-last", "--max-steps", "1",
                          "--print-freq", "1", "--no-eval"});
  });
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 10, processes = 2;
  return run_program(table_of(rounds, processes), argc, argv,
                     [&](const flags::Parsed&) { measure(rounds, std::to_string(processes)); });
}
