#include "lockstep/rendezvous/segment_exchange.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::rendezvous {
namespace {

using base::Segment;
using base::UniqueFd;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRetry{5};

// What a rank says when it has connected.
struct Hello {
  std::uint64_t magic = base::kControlMagic;
  std::int32_t local_rank = 0;
  std::int32_t local_world_size = 0;
};

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

// FNV-1a: the same in every build, unlike std::hash.
std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 0xcbf29ce484222325ULL;
  for (const unsigned char c : text) value = (value ^ c) * 0x100000001b3ULL;
  return value;
}

// Abstract: the name begins with a zero byte and lives in no file system.
Address address_of(const Place& place) {
  char text[64];
  std::snprintf(text, sizeof text, "lockstep-%u-%016llx", unsigned(geteuid()),
                static_cast<unsigned long long>(hash(place.job_key)));
  Address address;
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, text, std::strlen(text));
  address.length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(text));
  return address;
}

UniqueFd make_socket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) throw_errno("segment exchange: socket");
  return fd;
}

// Waits until the descriptor can be read; false when the deadline is over.
bool readable_by(int fd, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    pollfd wanted{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&wanted, 1, int(std::clamp<long long>(left, 0, 3'600'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw_errno("segment exchange: poll");
    if (ready == 0 && left <= 0) return false;
  }
}

bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

// One message that carries a descriptor.
class Parcel {
 public:
  Parcel() {
    message_.msg_iov = &bytes_;
    message_.msg_iovlen = 1;
    message_.msg_control = control_;
    message_.msg_controllen = sizeof control_;
  }

  bool send(int socket, int fd) {
    cmsghdr* header = CMSG_FIRSTHDR(&message_);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(socket, &message_, MSG_NOSIGNAL) == 1;
  }

  UniqueFd receive(int socket) {
    if (recvmsg(socket, &message_, MSG_CMSG_CLOEXEC) != 1) return UniqueFd();
    const cmsghdr* header = CMSG_FIRSTHDR(&message_);
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int)))
      return UniqueFd();
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return UniqueFd(fd);
  }

 private:
  char byte_ = 0;
  iovec bytes_{&byte_, 1};
  alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(int))] = {};
  msghdr message_{};
};

// Another process of this name is either our job's second local rank 0 or an older one on
// its way out; the latter is worth waiting for.
UniqueFd listen_at(const Address& address, const Place& place, Clock::time_point deadline) {
  UniqueFd listener = make_socket();
  while (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0) {
    if (errno != EADDRINUSE) throw_errno("segment exchange: bind");
    if (Clock::now() >= deadline)
      throw Error("segment exchange: another process is local rank 0 of this job already (" + place.job_key + ")");
    std::this_thread::sleep_for(kRetry);
  }
  if (listen(listener.get(), base::kMaxLocalRanks) != 0) throw_errno("segment exchange: listen");
  return listener;
}

// The local rank that spoke, or nothing when it went away or is none of ours.
std::optional<int> read_hello(int fd, const Place& place, Clock::time_point deadline) {
  Hello hello;
  if (!same_user(fd) || !readable_by(fd, deadline)) return std::nullopt;
  if (recv(fd, &hello, sizeof hello, 0) != ssize_t(sizeof hello) || hello.magic != base::kControlMagic)
    return std::nullopt;
  if (hello.local_world_size != place.local_world_size)
    throw Error("segment exchange: local rank " + std::to_string(hello.local_rank) + " was started for " +
                std::to_string(hello.local_world_size) + " local ranks, local rank 0 for " +
                std::to_string(place.local_world_size));
  if (hello.local_rank < 1 || hello.local_rank >= place.local_world_size) return std::nullopt;
  return hello.local_rank;
}

std::string seconds(milliseconds timeout) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", double(timeout.count()) / 1000);
  return text;
}

[[noreturn]] void throw_missing(const std::vector<bool>& served, milliseconds timeout) {
  std::string missing;
  for (std::size_t rank = 1; rank < served.size(); ++rank)
    if (!served[rank]) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  throw Error("segment exchange: these local ranks did not come within " + seconds(timeout) + ": " + missing);
}

Segment serve(const Place& place, milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  Segment segment = Segment::create(place.local_world_size);
  const UniqueFd listener = listen_at(address_of(place), place, deadline);
  std::vector<bool> served(std::size_t(place.local_world_size), false);
  for (int missing = place.local_world_size - 1; missing > 0;) {
    if (!readable_by(listener.get(), deadline)) throw_missing(served, timeout);
    const UniqueFd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer && (errno == ECONNABORTED || errno == EINTR || errno == EPROTO)) continue;  // it hung up again
    if (!peer) throw_errno("segment exchange: accept");
    const std::optional<int> rank = read_hello(peer.get(), place, deadline);
    if (!rank || !Parcel().send(peer.get(), segment.fd())) continue;
    if (served[std::size_t(*rank)])
      throw Error("segment exchange: two processes are local rank " + std::to_string(*rank));
    served[std::size_t(*rank)] = true;
    --missing;
  }
  return segment;
}

// One attempt; nothing when local rank 0 is not there yet or went away.
std::optional<Segment> ask(const Address& address, const Place& place, Clock::time_point deadline) {
  const UniqueFd socket = make_socket();
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0) return std::nullopt;
  if (!same_user(socket.get())) throw Error("segment exchange: another user's process has taken this job's name");
  const Hello hello{.local_rank = place.local_rank, .local_world_size = place.local_world_size};
  if (send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) != ssize_t(sizeof hello)) return std::nullopt;
  if (!readable_by(socket.get(), deadline)) return std::nullopt;
  UniqueFd fd = Parcel().receive(socket.get());
  if (!fd) return std::nullopt;
  return Segment::adopt(std::move(fd), place.local_world_size);
}

Segment fetch(const Place& place, milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const Address address = address_of(place);
  for (;;) {
    if (auto segment = ask(address, place, deadline)) return std::move(*segment);
    if (Clock::now() >= deadline)
      throw Error("segment exchange: local rank 0 did not offer the segment within " + seconds(timeout) +
                  " (local rank " + std::to_string(place.local_rank) + " waited for it)");
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace

Segment share_segment(const Place& place, milliseconds timeout) {
  if (!place.segment_path.empty()) return Segment::open(place.segment_path, place.local_world_size);
  if (place.local_world_size == 1) return Segment::create(1);
  return place.local_rank == 0 ? serve(place, timeout) : fetch(place, timeout);
}

}  // namespace lockstep::rendezvous
