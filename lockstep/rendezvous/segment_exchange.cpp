#include "lockstep/rendezvous/segment_exchange.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/local_socket.h"

namespace lockstep::rendezvous {
namespace {

using base::Segment;
using base::UniqueFd;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRetry{5};
constexpr milliseconds kMostRetry{50};

// What a rank says when it has connected; the job's key follows.
struct Hello {
  std::uint64_t magic = base::kControlMagic;
  std::uint64_t pid_namespace = own_pid_namespace();
  std::int32_t local_rank = 0;
  std::int32_t local_world_size = 0;
};

std::string seconds(milliseconds timeout) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", double(timeout.count()) / 1000);
  return text;
}

int poll_time(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  return int(std::clamp<long long>(left, 0, 3'600'000));
}

// Different for each rank and try, so that two that give way to each other do not do so for ever.
milliseconds jitter() {
  unsigned char byte = 0;
  [[maybe_unused]] const ssize_t got = getrandom(&byte, sizeof byte, 0);
  return kRetry + milliseconds(byte % 16);
}

// Local rank 0: hands the segment to the others, in whatever order they come and however slowly they speak.
class Server {
 public:
  Server(const Place& place, milliseconds timeout)
      : place_(place),
        timeout_(timeout),
        deadline_(Clock::now() + timeout),
        segment_(Segment::create(place.local_world_size)),
        served_(std::size_t(place.local_world_size)) {}

  Segment serve() {
    listener_ = listen_alone();
    while (missing() > 0) wait_and_answer();
    return std::move(segment_);
  }

 private:
  // A local rank that has got the segment; until all have come its process must live.
  struct Served {
    bool here = false;
    Peer peer;
  };

  // Another local rank 0 of this job is a mistake, or an older one on its way out, which is worth waiting for. Of two
  // that see each other each takes its name back; who sees none has the job, for the name was there before it looked.
  UniqueFd listen_alone() const {
    for (;;) {
      const std::string name = socket_name(place_.job_key);
      UniqueFd listener = listen_at(name);
      const std::optional<Peer> other = another_server(name);
      if (!other) return listener;
      if (Clock::now() >= deadline_)
        throw Error("segment exchange: process " + std::to_string(other->pid) +
                    " is local rank 0 of this job already (" + place_.job_key + ")");
      listener = UniqueFd();
      std::this_thread::sleep_for(jitter());
    }
  }

  std::optional<Peer> another_server(const std::string& mine) const {
    for (const std::string& name : names_of_job(place_.job_key)) {
      if (name == mine) continue;
      const UniqueFd socket = connect_to(name);
      if (std::optional<Peer> peer = peer_of(socket.get()); peer && peer->is_ours()) return peer;
    }
    return {};
  }

  std::size_t missing() const {
    return std::size_t(std::count_if(served_.begin() + 1, served_.end(), [](const Served& s) { return !s.here; }));
  }

  void wait_and_answer() {
    std::vector<pollfd> polled{{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const UniqueFd& guest : guests_) polled.push_back({.fd = guest.get(), .events = POLLIN, .revents = 0});
    for (const Served& s : served_) polled.push_back({.fd = s.peer.pidfd.get(), .events = POLLIN, .revents = 0});
    const int ready = poll(polled.data(), polled.size(), poll_time(deadline_));
    if (ready < 0 && errno != EINTR) throw_errno("segment exchange: poll");
    if (ready <= 0) {
      if (Clock::now() >= deadline_) throw_missing();
      return;
    }
    for (std::size_t rank = 0; rank < served_.size(); ++rank)
      if (polled[1 + guests_.size() + rank].revents != 0) throw_gone(int(rank));
    std::vector<UniqueFd> silent;
    for (std::size_t i = 0; i < guests_.size(); ++i)
      polled[1 + i].revents != 0 ? answer(guests_[i]) : silent.push_back(std::move(guests_[i]));
    guests_ = std::move(silent);
    if (polled[0].revents != 0) let_in();
  }

  void let_in() {
    UniqueFd guest(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!guest && (errno == ECONNABORTED || errno == EINTR || errno == EPROTO)) return;  // it hung up again
    if (!guest) throw_errno("segment exchange: accept");
    const std::optional<Peer> peer = peer_of(guest.get());
    if (peer && peer->is_ours()) guests_.push_back(std::move(guest));
  }

  void answer(const UniqueFd& guest) {
    std::optional<Peer> peer = peer_of(guest.get());
    const std::optional<Hello> hello = read_hello(guest.get());
    if (!peer || !hello) return;
    if (hello->local_world_size != place_.local_world_size)
      throw Error("segment exchange: local rank " + std::to_string(hello->local_rank) + " was started for " +
                  std::to_string(hello->local_world_size) + " local ranks, local rank 0 for " +
                  std::to_string(place_.local_world_size));
    if (hello->local_rank < 1 || hello->local_rank >= place_.local_world_size) return;
    if (!send_descriptor(guest.get(), segment_.fd())) return;
    Served& served = served_[std::size_t(hello->local_rank)];
    if (served.here)
      throw Error("segment exchange: two processes are local rank " + std::to_string(hello->local_rank) + ": " +
                  std::to_string(served.peer.pid) + " and " + std::to_string(peer->pid));
    served = {.here = true, .peer = std::move(*peer)};
  }

  // Nothing when it went away or is of another job: the key decides, the name holds no more than its hash.
  std::optional<Hello> read_hello(int guest) const {
    Hello hello;
    std::string key(place_.job_key.size() + 1, '\0');  // a longer one shows
    if (!receive_two(guest, &hello, sizeof hello, key)) return {};
    if (hello.magic != base::kControlMagic || key != place_.job_key) return {};
    if (hello.pid_namespace != own_pid_namespace()) return {};
    return hello;
  }

  [[noreturn]] void throw_missing() const {
    std::string ranks;
    for (std::size_t rank = 1; rank < served_.size(); ++rank)
      if (!served_[rank].here) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    throw Error("segment exchange: these local ranks did not come within " + seconds(timeout_) + ": " + ranks);
  }

  [[noreturn]] void throw_gone(int rank) const {
    throw Error("segment exchange: local rank " + std::to_string(rank) + " (process " +
                std::to_string(served_[std::size_t(rank)].peer.pid) + ") has ended before all local ranks had come");
  }

  const Place& place_;
  const milliseconds timeout_;
  const Clock::time_point deadline_;
  Segment segment_;
  UniqueFd listener_;
  std::vector<UniqueFd> guests_;  // have connected, and not spoken yet
  std::vector<Served> served_;    // by local rank
};

// Another local rank: looks for local rank 0 and asks it.
class Client {
 public:
  Client(const Place& place, milliseconds timeout)
      : place_(place), timeout_(timeout), deadline_(Clock::now() + timeout) {}

  Segment fetch() {
    for (milliseconds rest = kRetry;; rest = std::min(2 * rest, kMostRetry)) {
      strangers_.clear();
      for (const std::string& name : names_of_job(place_.job_key))
        if (auto segment = ask(name)) return std::move(*segment);
      if (Clock::now() >= deadline_) throw_unserved();
      std::this_thread::sleep_for(rest);
    }
  }

 private:
  // Nothing when it is no local rank 0 of this job, or went away.
  std::optional<Segment> ask(const std::string& name) {
    const UniqueFd socket = connect_to(name);
    const std::optional<Peer> peer = peer_of(socket.get());
    if (!peer) return {};
    if (!peer->is_ours()) {
      strangers_ += (strangers_.empty() ? "" : ", ") + peer->describe();
      return {};
    }
    const Hello hello{.local_rank = place_.local_rank, .local_world_size = place_.local_world_size};
    if (!send_two(socket.get(), &hello, sizeof hello, place_.job_key)) return {};
    pollfd answer{.fd = socket.get(), .events = POLLIN, .revents = 0};
    while (poll(&answer, 1, poll_time(deadline_)) <= 0)
      if (Clock::now() >= deadline_) return {};
    UniqueFd fd = receive_descriptor(socket.get());
    if (!fd) return {};
    return Segment::adopt(std::move(fd), place_.local_world_size);
  }

  [[noreturn]] void throw_unserved() const {
    throw Error("segment exchange: local rank 0 did not offer the segment within " + seconds(timeout_) +
                " (local rank " + std::to_string(place_.local_rank) + " waited for it)" +
                (strangers_.empty() ? "" : "; not asked, for they are not of this user: " + strangers_) +
                others_elsewhere(place_.job_key));
  }

  const Place& place_;
  const milliseconds timeout_;
  const Clock::time_point deadline_;
  std::string strangers_;
};

}  // namespace

Segment share_segment(const Place& place, std::chrono::milliseconds timeout) {
  if (!place.segment_path.empty()) return Segment::open(place.segment_path, place.local_world_size);
  if (place.local_world_size == 1) return Segment::create(1);
  return place.local_rank == 0 ? Server(place, timeout).serve() : Client(place, timeout).fetch();
}

}  // namespace lockstep::rendezvous
