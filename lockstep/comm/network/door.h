#pragma once

// Talking over connections while a group forms: nothing here waits longer than its Patience. Torch-free.

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/descriptor_limit.h"
#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/comm/network/words.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::comm {

/// Until when something is waited for, and who says that there is no sense in it any more.
struct Patience {
  std::chrono::steady_clock::time_point deadline;
  const std::function<void()>& check;  ///< throws

  bool is_over() const;
  /// For poll(): so long, then is_over() is asked again.
  int slice() const;
};

/// Whether all of it was moved: not when the other side went away, or the deadline came.
bool write_all(int fd, const void* bytes, std::size_t size, const Patience& patience);
bool read_all(int fd, void* bytes, std::size_t size, const Patience& patience);

/// How somebody begins to speak.
enum class Opening {
  right,   ///< as it is to be, as far as he has come; nothing of it is taken
  other,   ///< he is somebody else
  closed,  ///< not at all: he went away
  late,    ///< not before the deadline
};

/// Waits for the first word of who is to begin with `magic`. A stranger may say little, and wait then.
Opening await_opening(int fd, std::uint64_t magic, const Patience& patience);

/// Connected, or nothing.
base::UniqueFd connect_by(const rendezvous::SocketAddress& address, const Patience& patience);

/// Who has come to a listener and said what each says first, a T (words.h). As many strangers as like may hang about
/// until all have come; who speaks slowly is not waited for alone.
template <class T>
class Door {
 public:
  explicit Door(int listener) : listener_(listener) {}

  /// The next that has spoken; nothing when the deadline has come.
  std::optional<std::pair<base::UniqueFd, T>> next(const Patience& patience) {
    while (!patience.is_over()) {
      std::vector<pollfd> polled{{.fd = listener_, .events = POLLIN, .revents = 0}};
      for (const Guest& guest : guests_) polled.push_back({.fd = guest.fd.get(), .events = POLLIN, .revents = 0});
      const int ready = poll(polled.data(), polled.size(), patience.slice());
      if (ready < 0 && errno != EINTR) throw_errno("group: poll");
      if (ready <= 0) continue;
      for (std::size_t i = 0; i < guests_.size(); ++i) {
        if (polled[1 + i].revents == 0) continue;
        Guest& guest = guests_[i];
        const ssize_t got = ::recv(guest.fd.get(), guest.bytes.data() + guest.size, sizeof(T) - guest.size, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got > 0) guest.size += std::size_t(got);
        if (got > 0 && guest.size < sizeof(T)) continue;
        Guest done = std::move(guest);
        guests_.erase(guests_.begin() + std::ptrdiff_t(i));
        const std::optional<T> said = got > 0 ? words_in<T>(done.bytes) : std::nullopt;
        if (said) return std::pair(std::move(done.fd), *said);
        break;  // a stranger; the list is another now
      }
      if (polled[0].revents != 0) {
        if (base::UniqueFd fd = rendezvous::accept_at(listener_)) {
          if (guests_.size() >= kMostGuests) guests_.erase(guests_.begin());
          guests_.push_back({.fd = std::move(fd)});
        } else if (errno == EMFILE || errno == ENFILE) {
          make_room(errno);
        }
      }
    }
    return {};
  }

 private:
  static constexpr std::size_t kMostGuests = 512;
  // Who waits outside stays there while no descriptor is left, so poll() would return at once until the deadline.
  void make_room(int error) {
    if (guests_.empty())
      throw Error("group: nobody can be let in: " +
                  (error == EMFILE ? base::descriptor_limit_text() : std::string(std::strerror(error))));
    guests_.erase(guests_.begin());
  }
  struct Guest {
    base::UniqueFd fd;
    std::array<std::byte, sizeof(T)> bytes{};
    std::size_t size = 0;
  };
  const int listener_;
  std::vector<Guest> guests_;
};

}  // namespace lockstep::comm
