#include "lockstep/base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::base {

void open_standard_streams() {
  // open() gives the lowest free number, and those below are taken by now.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) throw_errno("/dev/null");
}

}  // namespace lockstep::base
