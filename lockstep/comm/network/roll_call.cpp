#include "lockstep/comm/network/roll_call.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/network/connections.h"
#include "lockstep/comm/network/door.h"
#include "lockstep/comm/network/words.h"
#include "lockstep/rendezvous/address_file.h"
#include "lockstep/rendezvous/local_socket.h"
#include "lockstep/rendezvous/own_address.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::comm {
namespace {

using base::UniqueFd;
using rendezvous::Backend;
using rendezvous::Place;
using rendezvous::SocketAddress;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kKnockAgain{20};
// So long an address from a file is tried: an earlier start may have left it.
constexpr milliseconds kOneKnock{2'000};
// So late nobody looks again: who listens at the next address could not be told in time.
constexpr milliseconds kLastKnock{200};
constexpr milliseconds kGrace{1'000};

// What rank 0 says to each, all at the same time.
struct Answer {
  std::uint64_t magic = kRollMagic;
  Seat seat{};
  Token run{};
  std::int32_t wrong_use = 0;  // the refusal is the user's mistake
  std::int32_t other_key = 0;  // it is for that
  char refusal[316] = {};
};

std::string duration(milliseconds timeout) {
  std::ostringstream text;
  text << double(timeout.count()) / 1000 << " s";
  return text.str();
}

std::string host_name() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return host;
}

std::string meeting_point(const Place& place) {
  return place.meeting_file.empty() ? "tcp://" + place.master_addr + ":" + std::to_string(place.master_port)
                                    : "file://" + place.meeting_file;
}

Present present(const Place& place, Backend backend, const std::string& machine) {
  Present own{.rank = place.rank, .world = place.world_size, .pid = getpid(), .backend = backend};
  put_text(own.machine, machine);
  put_text(own.host, host_name());
  return own;
}

std::string not_come(const std::vector<Present>& all) {
  std::string ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].world == 0) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return ranks;
}

SocketAddress named_address(const Place& place) {
  const std::string what = "init: " + meeting_point(place) + ":";
  return rendezvous::reachable(what, place.master_addr, rendezvous::resolve(what, place.master_addr, place.master_port),
                               rendezvous::own_interfaces(), place.socket_interface);
}

// Where others reach this machine: nobody has said it.
SocketAddress own_address(const Place& place) {
  const std::vector<rendezvous::Interface> interfaces = rendezvous::own_interfaces();
  if (!place.socket_interface.empty()) return rendezvous::address_of(place.socket_interface, interfaces);
  const std::string what = "init: " + meeting_point(place) + ": the name of rank 0's machine";
  return rendezvous::reachable(what, host_name(), rendezvous::resolve(what, host_name(), 0), interfaces);
}

UniqueFd listen_for(const Place& place, const SocketAddress& address) {
  rendezvous::Listening listening = rendezvous::listen_at(address);
  if (listening.fd) return std::move(listening.fd);
  throw UsageError("init: rank 0 cannot listen at " + to_text(address) + ", " + meeting_point(place) + ": " +
                   std::strerror(listening.error) +
                   (listening.error == EADDRINUSE ? "; another process is rank 0, or has that port"
                    : place.meeting_file.empty()  ? "; it is to be an address of rank 0's machine"
                                                  : "; name the interface by LOCKSTEP_SOCKET_IFNAME"));
}

void set_master(Place& place, const SocketAddress& address) {
  const std::string text = to_text(address);
  const std::size_t colon = text.rfind(':');
  place.master_addr = text.substr(0, colon);
  place.master_port = std::stoi(text.substr(colon + 1));
}

Place seated(Place place, const Answer& answer) {
  place.local_rank = answer.seat.local_rank;
  place.local_world_size = answer.seat.local_world;
  place.meeting_key = hex_of(answer.run);
  place.job_key = "hand " + place.meeting_key + " node " + std::to_string(answer.seat.first);
  place.nodes_known = true;
  return place;
}

// Rank 0's side.
class Caller {
 public:
  Caller(const Place& place, const Present& own, milliseconds timeout)
      : place_(place), timeout_(timeout), all_(std::size_t(own.world)), ranks_(std::size_t(own.world)) {
    all_[0] = own;
  }

  Place call() {
    const bool by_file = !place_.meeting_file.empty();
    UniqueFd listener = listen_for(place_, by_file ? own_address(place_) : named_address(place_));
    std::optional<rendezvous::AddressFile> file;
    if (by_file) {
      const SocketAddress address = rendezvous::own_end(listener.get());
      set_master(place_, address);
      key_ = hex_of(new_token());
      file.emplace(place_.meeting_file, to_text(address) + " " + key_);
    }
    take_in_all(listener.get());
    listener = UniqueFd();  // before anybody comes to the network's meeting point, which is the same
    return answer_all();
  }

 private:
  void take_in_all(int listener) {
    const std::function<void()> check = [] {};
    const Patience patience{Clock::now() + timeout_, check};
    Door<Present> door(listener);
    for (;;) {
      forget_the_gone();
      if (not_come(all_).empty()) break;
      auto came = door.next(patience);
      if (!came) {
        const std::string why = "these ranks did not come to " + meeting_point(place_) + " within " +
                                duration(timeout_) + ": " + not_come(all_);
        refuse_all(why, false);
        throw Error("init: " + why);
      }
      auto& [fd, one] = *came;
      forget_the_gone();  // one that was started again is the same rank
      if (text_in(one.key) != key_) {
        Answer other = refusal("rank 0 at this address is of another job", true);
        other.other_key = 1;
        say(fd.get(), other);
        continue;
      }
      if (const std::string why = contradiction(one, all_); !why.empty()) {
        say(fd.get(), refusal(why, true));
        throw_to_all(why);
      }
      all_[std::size_t(one.rank)] = one;
      ranks_[std::size_t(one.rank)] = std::move(fd);
    }
    if (const std::string why = disagreement(all_); !why.empty()) throw_to_all(why);
  }

  // Who came and has ended since has not come.
  void forget_the_gone() {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank] || !is_gone(ranks_[rank].get())) continue;
      ranks_[rank] = {};
      all_[rank] = {.world = 0};
    }
  }

  // It says nothing more until it is answered.
  static bool is_gone(int fd) {
    char byte = 0;
    const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  }

  Place answer_all() {
    std::vector<std::string> machines;
    for (const Present& one : all_) machines.push_back(text_in(one.machine));
    const std::vector<Seat> seats = seats_of(machines);
    Answer answer{.run = new_token()};
    for (std::size_t rank = 1; rank < all_.size(); ++rank) {
      answer.seat = seats[rank];
      if (!say(ranks_[rank].get(), answer))
        throw Error("init: " + who_is(all_[rank]) + " went away while ranks were meeting");
    }
    answer.seat = seats[0];
    return seated(place_, answer);
  }

  static Answer refusal(const std::string& why, bool wrong_use) {
    Answer answer{.wrong_use = wrong_use};
    put_text(answer.refusal, why);
    return answer;
  }

  [[noreturn]] void throw_to_all(const std::string& why) const {
    refuse_all(why, true);
    throw UsageError("init: " + why);
  }

  void refuse_all(const std::string& why, bool wrong_use) const {
    for (const UniqueFd& fd : ranks_)
      if (fd) say(fd.get(), refusal(why, wrong_use));
  }

  // An answer fits into what the kernel keeps for a connection on which nothing has been said.
  static bool say(int fd, const Answer& answer) {
    const std::function<void()> check = [] {};
    return write_all(fd, &answer, sizeof answer, {Clock::now() + kGrace, check});
  }

  Place place_;
  const milliseconds timeout_;
  std::string key_;
  std::vector<Present> all_;     // by rank
  std::vector<UniqueFd> ranks_;  // who waits for an answer
};

// The side of all other ranks.
class Called {
 public:
  Called(const Place& place, const Present& own, milliseconds timeout) : place_(place), own_(own), timeout_(timeout) {}

  Place answer() {
    if (place_.meeting_file.empty()) address_ = named_address(place_);
    const Patience arrival{Clock::now() + timeout_, check_};
    for (;;) {
      if (const std::optional<Place> seat = ask(reach(arrival), arrival)) return *seat;
      std::this_thread::sleep_for(kKnockAgain);
    }
  }

 private:
  // Nothing: whoever has got the address in the file of an earlier start is somebody else.
  std::optional<Place> ask(const UniqueFd& fd, const Patience& arrival) {
    // From here on as long again and a little more: rank 0's own wait ends before, and it says who did not come.
    const Patience patience{Clock::now() + timeout_ + kGrace, check_};
    Answer answer;
    const std::string waited = "init: rank " + std::to_string(own_.rank) + " waited at " + meeting_point(place_);
    const auto lost = [&] {
      return Error(waited + (patience.is_over()
                                 ? " for rank 0's answer, which did not come within " + duration(timeout_)
                                 : ", and rank 0 went away before all ranks had come"));
    };
    if (!write_all(fd.get(), &own_, sizeof own_, patience)) throw lost();
    const std::optional<Opening> opening = opening_at(fd.get(), patience);
    if (!opening) return std::nullopt;
    const bool speaks = *opening == Opening::right && read_all(fd.get(), &answer, sizeof answer, patience);
    if (!speaks && *opening != Opening::other) throw lost();
    const bool is_rank_zero = speaks && answer.magic == kRollMagic;
    if (!is_rank_zero || answer.other_key != 0) {
      const bool may_come = !place_.meeting_file.empty() && Clock::now() + kLastKnock < arrival.deadline;
      if (may_come) return std::nullopt;
      throw_other(is_rank_zero ? shown_in(answer.refusal) : "somebody else listens there");
    }
    if (answer.refusal[0] != 0) {
      const std::string why = "init: " + shown_in(answer.refusal);
      if (answer.wrong_use != 0) throw UsageError(why);
      throw Error(why);
    }
    if (!place_.meeting_file.empty()) set_master(place_, address_);
    return seated(place_, answer);
  }

  // How who listens there begins to speak. Nothing: the file names another address by now, so it is not rank 0.
  std::optional<Opening> opening_at(int fd, const Patience& patience) const {
    for (;;) {
      Patience once = patience;
      once.deadline = std::min(once.deadline, Clock::now() + kOneKnock);
      const Opening opening = await_opening(fd, kRollMagic, once);
      if (opening != Opening::late || patience.is_over()) return opening;
      if (place_.meeting_file.empty()) continue;
      const std::optional<std::string> text = rendezvous::AddressFile::read(place_.meeting_file);
      if (text && *text != told_) return std::nullopt;
    }
  }

  UniqueFd reach(const Patience& patience) {
    bool found = place_.meeting_file.empty();
    for (;;) {
      Patience once = patience;
      if (!place_.meeting_file.empty()) {
        once.deadline = std::min(once.deadline, Clock::now() + kOneKnock);
        found = look_up();
      }
      if (found)
        if (UniqueFd fd = connect_by(address_, once)) return fd;
      if (patience.is_over()) throw_unreached(found);
      std::this_thread::sleep_for(kKnockAgain);
    }
  }

  bool look_up() {
    const std::optional<std::string> text = rendezvous::AddressFile::read(place_.meeting_file);
    if (!text) return false;
    const std::size_t space = text->find(' ');
    const std::optional<SocketAddress> address = rendezvous::parse_address(text->substr(0, space));
    if (space == std::string::npos || !address)
      throw UsageError("init: " + meeting_point(place_) + ": has '" + base::shown(*text) + "' for rank 0's address");
    address_ = *address;
    told_ = *text;
    std::ranges::fill(own_.key, '\0');  // of what an earlier look has found
    put_text(own_.key, text->substr(space + 1));
    return true;
  }

  std::string not_reached() const {
    return "init: rank " + std::to_string(own_.rank) + " did not reach rank 0 at " + meeting_point(place_);
  }

  // Two jobs of one address are a mistake; a file may be of a start whose rank 0 is dead.
  [[noreturn]] void throw_other(const std::string& who) const {
    if (place_.meeting_file.empty()) throw UsageError(not_reached() + ": " + who);
    throw Error(not_reached() + " within " + duration(timeout_) + ": it names " + to_text(address_) + ", and " + who +
                "; where an earlier start has left the file, remove it");
  }

  [[noreturn]] void throw_unreached(bool found) const {
    const std::string waited = not_reached() + " within " + duration(timeout_);
    if (place_.meeting_file.empty()) throw Error(waited);
    throw Error(waited + (found ? ": nobody answers at " + to_text(address_) +
                                      ", which it names; where an earlier start has left the file, remove it"
                                : ": it has not written that file"));
  }

  const std::function<void()> check_ = [] {};
  Place place_;
  Present own_;
  const milliseconds timeout_;
  SocketAddress address_;
  std::string told_;  // by the file, when it was read last
};

std::uint64_t inode(const char* path) {
  struct stat status {};
  if (stat(path, &status) != 0) throw_errno(std::string("init: ") + path);
  return status.st_ino;
}

}  // namespace

std::vector<Seat> seats_of(const std::vector<std::string>& machines) {
  std::map<std::string, Seat> nodes;  // local_rank: of the next
  std::vector<Seat> seats;
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    Seat& node = nodes.try_emplace(machines[rank], Seat{.first = int(rank)}).first->second;
    seats.push_back(node);
    ++node.local_rank;
  }
  for (std::size_t rank = 0; rank < machines.size(); ++rank)
    seats[rank].local_world = nodes.at(machines[rank]).local_rank;
  return seats;
}

std::string own_machine() {
  std::string kernel;
  if (!(std::ifstream("/proc/sys/kernel/random/boot_id") >> kernel))
    throw Error("init: no /proc/sys/kernel/random/boot_id");
  return kernel + " " + std::to_string(rendezvous::own_pid_namespace()) + "." +
         std::to_string(inode("/proc/self/ns/net")) + " " + std::to_string(geteuid());
}

Place call_roll(const Place& place, Backend backend, milliseconds timeout, const std::string& machine) {
  const Present own = present(place, backend, machine);
  return place.rank == 0 ? Caller(place, own, timeout).call() : Called(place, own, timeout).answer();
}

}  // namespace lockstep::comm
