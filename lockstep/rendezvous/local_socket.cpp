#include "lockstep/rendezvous/local_socket.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "lockstep/base/control_page.h"
#include "lockstep/base/error.h"

// Since Linux 6.5; older headers do not have it.
#ifndef SO_PEERPIDFD
#  define SO_PEERPIDFD 77
#endif

namespace lockstep::rendezvous {
namespace {

using base::UniqueFd;

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&name); }
};

// Abstract: the name begins with a zero byte and lives in no file system.
Address address_of(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::size_t size = std::min(name.size(), sizeof address.name.sun_path - 1);
  std::memcpy(address.name.sun_path + 1, name.data(), size);
  address.length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + size);
  return address;
}

UniqueFd make_socket(Carries what, int flags) {
  const int type = what == Carries::bytes ? SOCK_STREAM : SOCK_SEQPACKET;
  return UniqueFd(socket(AF_UNIX, type | SOCK_CLOEXEC | flags, 0));
}

// FNV-1a: the same in every build, unlike std::hash.
std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 0xcbf29ce484222325ULL;
  for (const unsigned char c : text) value = (value ^ c) * 0x100000001b3ULL;
  return value;
}

std::string hexadecimal(std::uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

std::string beginning(const std::string& job_key) {
  return "lockstep-" + std::to_string(geteuid()) + "-" + hexadecimal(hash(job_key)) + "-";
}

std::string beginning_here(const std::string& job_key) {
  return beginning(job_key) + std::to_string(own_pid_namespace()) + "-";
}

// The abstract names with this beginning at which somebody listens.
std::vector<std::string> names_with(const std::string& start) {
  constexpr unsigned kListens = 0x10000;  // __SO_ACCEPTCON
  std::ifstream table("/proc/self/net/unix");
  if (!table) throw_errno("segment exchange: /proc/self/net/unix, where local rank 0 is looked for");
  std::vector<std::string> names;
  for (std::string line; std::getline(table, line);) {
    // "address: references protocol flags type state inode @name", hexadecimal but for the inode.
    std::istringstream words(line);
    std::string address, references, protocol, flags, type, state, inode, name;
    if (!(words >> address >> references >> protocol >> flags >> type >> state >> inode >> name)) continue;
    if ((std::strtoul(flags.c_str(), nullptr, 16) & kListens) != 0 && name.starts_with("@" + start))
      names.push_back(name.substr(1));
  }
  return names;
}

bool is_connected(int socket) {
  pollfd hung_up{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return poll(&hung_up, 1, 0) == 0;
}

// By number only as long as the process is surely the one that has connected: it holds its end.
UniqueFd pidfd_of(int socket, pid_t pid) {
  int fd = -1;
  socklen_t length = sizeof fd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0) return UniqueFd(fd);
  if (pid == 0) return UniqueFd();
  UniqueFd opened(int(syscall(SYS_pidfd_open, pid, 0)));
  return is_connected(socket) ? std::move(opened) : UniqueFd();
}

}  // namespace

std::uint64_t own_pid_namespace() {
  struct stat status {};
  if (stat("/proc/self/ns/pid", &status) != 0) throw_errno("segment exchange: the PID namespace, /proc/self/ns/pid");
  return status.st_ino;
}

std::string socket_name(const std::string& job_key) {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != ssize_t(sizeof number)) throw_errno("segment exchange: getrandom");
  return beginning_here(job_key) + hexadecimal(number);
}

std::vector<std::string> names_of_job(const std::string& job_key) { return names_with(beginning_here(job_key)); }

std::string others_elsewhere(const std::string& job_key) {
  return names_with(beginning(job_key)).size() == names_of_job(job_key).size()
             ? ""
             : "; there is a local rank 0 of the same user and job in another PID namespace: ranks of one node have to "
               "share theirs";
}

UniqueFd listen_at(const std::string& name, Carries what) {
  UniqueFd listener = make_socket(what, 0);
  const Address address = address_of(name);
  if (!listener || bind(listener.get(), address.generic(), address.length) != 0 ||
      listen(listener.get(), base::kMaxLocalRanks) != 0)
    throw_errno("segment exchange: socket");
  return listener;
}

UniqueFd connect_to(const std::string& name, Carries what) {
  UniqueFd connected = make_socket(what, SOCK_NONBLOCK);
  if (!connected) throw_errno("segment exchange: socket");
  const Address address = address_of(name);
  if (connect(connected.get(), address.generic(), address.length) != 0) return UniqueFd();
  return connected;
}

bool Peer::is_ours() const { return user == geteuid() && pid != 0; }

std::string Peer::describe() const {
  return (pid == 0 ? "a process of another PID namespace" : "process " + std::to_string(pid)) + " of user " +
         std::to_string(user);
}

std::optional<Peer> peer_of(int socket) {
  ucred known{};
  socklen_t length = sizeof known;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &known, &length) != 0) return {};
  return Peer{.pid = known.pid, .user = known.uid, .pidfd = pidfd_of(socket, known.pid)};
}

bool send_two(int socket, const void* fixed, std::size_t size, const std::string& text) {
  iovec parts[] = {{const_cast<void*>(fixed), size}, {const_cast<char*>(text.data()), text.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  return sendmsg(socket, &message, MSG_NOSIGNAL) == ssize_t(size + text.size());
}

bool receive_two(int socket, void* fixed, std::size_t size, std::string& text) {
  iovec parts[] = {{fixed, size}, {text.data(), text.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT);
  if (got < ssize_t(size) || (message.msg_flags & MSG_TRUNC) != 0) return false;
  text.resize(std::size_t(got) - size);
  return true;
}

bool send_descriptor(int socket, int fd) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

UniqueFd receive_descriptor(int socket) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1) return UniqueFd();
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int)))
    return UniqueFd();
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return UniqueFd(fd);
}

}  // namespace lockstep::rendezvous
