#include "lockstep/launch/machine.h"

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {
int free_port() {
  base::UniqueFd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!probe || bind(probe.get(), generic, length) != 0 || getsockname(probe.get(), generic, &length) != 0)
    throw_errno("launcher: no free port on 127.0.0.1");
  return ntohs(address.sin_port);
}

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string random_id() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != ssize_t(sizeof number)) throw_errno("launcher: getrandom");
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

}  // namespace lockstep::launch
