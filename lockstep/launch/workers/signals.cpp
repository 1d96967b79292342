#include "lockstep/launch/workers/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::launch {

Signals::Signals(const std::vector<int>& signals) {
  sigemptyset(&wanted_);
  for (const int signal : signals) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (signal != SIGHUP || action.sa_handler != SIG_IGN) sigaddset(&wanted_, signal);
  }
  // An inherited "ignore" would make the kernel bury workers before their end is read.
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  sigset_t all = wanted_;
  sigaddset(&all, SIGCHLD);
  sigprocmask(SIG_BLOCK, &all, &before_);
  fd_ = base::UniqueFd(signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
  stop_fd_ = base::UniqueFd(signalfd(-1, &wanted_, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_ || !stop_fd_) throw_errno("launcher: signalfd");
}

void Signals::restore_for_worker() const {
  sigset_t mask = before_;
  for (int number = 1; number < NSIG; ++number) {
    if (sigismember(&wanted_, number) != 1) continue;
    signal(number, SIG_DFL);
    sigdelset(&mask, number);
  }
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
}

int Signals::next() const {
  signalfd_siginfo info{};
  return read(fd_.get(), &info, sizeof info) == ssize_t(sizeof info) ? int(info.ssi_signo) : 0;
}

}  // namespace lockstep::launch
