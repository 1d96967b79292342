#include "lockstep/launch/workers/burial.h"

#include <sys/wait.h>

#include <cerrno>
#include <thread>

namespace lockstep::launch {

std::optional<int> bury(pid_t pid, std::chrono::milliseconds at_most) {
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  for (;;) {
    int status = 0;
    const pid_t buried = waitpid(pid, &status, WNOHANG);
    if (buried == pid) return status;
    if (buried < 0 && errno != EINTR) return std::nullopt;
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace lockstep::launch
