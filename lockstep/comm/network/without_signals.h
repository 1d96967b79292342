#pragma once

#include <pthread.h>

#include <csignal>

namespace lockstep::comm {

/// While one lives, no signal is for this thread, nor ever for those that it makes: they are for the program's own.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

  /// Those that were blocked before.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
};

}  // namespace lockstep::comm
