#include "lockstep/base/terminal.h"

#include <sys/ioctl.h>

namespace lockstep::base {

int terminal_columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace lockstep::base
