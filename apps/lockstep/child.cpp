#include "child.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::app {
namespace {

constexpr std::array kPassedOn{SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
volatile pid_t running_child = 0;
void pass_on(int signal) {
  if (running_child > 0) ::kill(running_child, signal);
}

}  // namespace

int run_child(const std::string& program, const std::vector<std::string>& arguments,
              const std::vector<std::string>& without) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) throw Error("cannot start " + program + ": " + std::strerror(errno));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(kExitFailure);
    for (const std::string& variable : without) ::unsetenv(variable.c_str());
    ::execv(program.c_str(), argv.data());
    std::fprintf(stderr, "lockstep: error: cannot start %s: %s\n", program.c_str(), std::strerror(errno));
    ::_exit(127);
  }
  running_child = child;
  // What was ignored, as SIGHUP under nohup, stays so, here and for who comes after.
  const auto before = std::signal(SIGINT, SIG_IGN);
  std::array<sighandler_t, kPassedOn.size()> found{};
  for (std::size_t i = 0; i < kPassedOn.size(); ++i) {
    found[i] = std::signal(kPassedOn[i], SIG_IGN);
    if (found[i] != SIG_IGN) std::signal(kPassedOn[i], pass_on);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  running_child = 0;
  for (std::size_t i = 0; i < kPassedOn.size(); ++i) std::signal(kPassedOn[i], found[i]);
  std::signal(SIGINT, before);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace lockstep::app
