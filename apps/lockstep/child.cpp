#include "child.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::app {
namespace {

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
    ::_exit(127);
  }
  running_child = child;
  const auto before = std::signal(SIGINT, SIG_IGN);
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) std::signal(signal, pass_on);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  running_child = 0;
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) std::signal(signal, SIG_DFL);
  std::signal(SIGINT, before);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace lockstep::app
