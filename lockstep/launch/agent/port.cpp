#include "lockstep/launch/agent/port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/launch/workers/process_state.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

// Binds without listening, so nothing can connect. On all addresses, both families at once, as a
// TCPStore does; without IPv6, on those of IPv4. Returns 0, or errno.
int try_port(int port, bool reuse) {
  const base::UniqueFd six(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const base::UniqueFd four(six ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int fd = six ? six.get() : four.get();
  const int off = 0;
  const int on = 1;
  if (reuse) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (six) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(std::uint16_t(port));
    return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(std::uint16_t(port));
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "socket:[1234]".
std::optional<ino_t> socket_inode(const std::string& link) {
  constexpr std::string_view kSocket = "socket:[";
  ino_t inode = 0;
  if (!link.starts_with(kSocket)) return {};
  std::from_chars(link.data() + kSocket.size(), link.data() + link.size(), inode);
  return inode;
}

// The children of all threads of a process.
std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code error;
  for (fs::directory_iterator thread("/proc/" + std::to_string(pid) + "/task", error), end; !error && thread != end;
       thread.increment(error)) {
    std::ifstream list(thread->path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

void add_sockets(pid_t pid, OurSockets& ours) {
  std::error_code error;
  fs::directory_iterator file("/proc/" + std::to_string(pid) + "/fd", error);
  for (; !error && file != fs::directory_iterator(); file.increment(error)) {
    std::error_code gone;  // closed meanwhile
    if (const auto inode = socket_inode(fs::read_symlink(file->path(), gone).string())) ours.inodes.push_back(*inode);
  }
  // One that has ended has no descriptors; one of another user does not show them.
  const ProcessState state = process_state(pid);
  if (error && state.letter != 0 && !state.is_dying()) ours.complete = false;
}

// Of all that descends from this process, as a subreaper: what a worker left behind is among it.
OurSockets sockets_of_descendants() {
  OurSockets ours;
  std::vector<pid_t> open = children_of(getpid());
  while (!open.empty()) {
    const pid_t pid = open.back();
    open.pop_back();
    add_sockets(pid, ours);
    for (const pid_t child : children_of(pid)) open.push_back(child);
  }
  return ours;
}

}  // namespace

int free_port() {
  int low = 32'768;
  int high = 60'999;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  constexpr int kTries = 200;
  int error = 0;
  for (int tries = 0; tries < kTries; ++tries) {
    const int port = port_candidate(random_number(), low, high);
    error = try_port(port, false);
    if (error == 0) return port;
  }
  throw UsageError("run: no free port for MASTER_PORT: " + std::to_string(kTries) + " were tried beside " +
                   std::to_string(low) + " to " + std::to_string(high) + ", those of outgoing connections (" +
                   std::generic_category().message(error) + "); end what holds them, or free one for --master-port");
}

bool port_is_taken(int port) {
  // With SO_REUSEADDR, connections that have ended and only wait for their time-out do not count.
  return try_port(port, true) == EADDRINUSE;
}

bool stranger_has_port(int port) {
  if (!port_is_taken(port)) return false;
  std::vector<ino_t> listeners = listening_inodes(text_of("/proc/net/tcp"), port);
  for (const ino_t inode : listening_inodes(text_of("/proc/net/tcp6"), port)) listeners.push_back(inode);
  return is_strangers(listeners, sockets_of_descendants());
}

std::vector<ino_t> listening_inodes(std::string_view table, int port) {
  constexpr const char* kListens = "0A";
  std::vector<ino_t> inodes;
  std::istringstream lines{std::string(table)};
  for (std::string line; std::getline(lines, line);) {
    // "sl local:port remote:port state queues timer retransmits uid timeout inode ...", hexadecimal up to the state.
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout;
    ino_t inode = 0;
    if (!(words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode))
      continue;
    const std::size_t colon = local.rfind(':');
    int at = 0;
    if (colon == std::string::npos) continue;
    std::from_chars(local.data() + colon + 1, local.data() + local.size(), at, 16);
    if (state == kListens && at == port) inodes.push_back(inode);
  }
  return inodes;
}

}  // namespace lockstep::launch
