#include "lockstep/launch/workers/orphans.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace lockstep::launch {

void bury_orphans(const std::function<bool(pid_t)>& is_awaited) {
  const std::string id = std::to_string(getpid());
  std::ifstream children("/proc/" + id + "/task/" + id + "/children");
  // Read to its end first: who is buried meanwhile moves the others up, and some would be passed over.
  const std::vector<pid_t> pids(std::istream_iterator<pid_t>(children), {});
  for (const pid_t pid : pids)
    if (!is_awaited(pid)) waitpid(pid, nullptr, WNOHANG);
}

}  // namespace lockstep::launch
