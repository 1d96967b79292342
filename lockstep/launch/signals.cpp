#include "lockstep/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::launch {

Signals::Signals(const std::vector<int>& signals) {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  for (const int signal : signals) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (signal != SIGHUP || action.sa_handler != SIG_IGN) sigaddset(&wanted, signal);
  }
  // An inherited "ignore" would make the kernel bury workers before their end is read.
  signal(SIGCHLD, SIG_DFL);
  sigset_t blocked = wanted;
  sigaddset(&blocked, SIGPIPE);
  sigprocmask(SIG_BLOCK, &blocked, &before_);
  fd_ = base::UniqueFd(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw_errno("launcher: signalfd");
}

Signals::~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

int Signals::next() const {
  signalfd_siginfo info{};
  return read(fd_.get(), &info, sizeof info) == ssize_t(sizeof info) ? int(info.ssi_signo) : 0;
}

}  // namespace lockstep::launch
