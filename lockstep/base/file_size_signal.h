#pragma once

// A limit on the size of files (RLIMIT_FSIZE) comes as a signal, which would end the program before its message.

#include <csignal>

namespace lockstep::base {

/// While it lives, a write beyond the limit fails with EFBIG instead. Of the whole process.
class WithoutFileSizeSignal {
 public:
  WithoutFileSizeSignal() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGXFSZ, &ignore, &before_);
  }
  ~WithoutFileSizeSignal() { sigaction(SIGXFSZ, &before_, nullptr); }
  WithoutFileSizeSignal(const WithoutFileSizeSignal&) = delete;
  WithoutFileSizeSignal& operator=(const WithoutFileSizeSignal&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace lockstep::base
