#pragma once

// Bytes to and from one other agent, as they go over a connected socket that never waits: plainly, or enciphered
// (tls.h).

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace lockstep::launch {

/// Why a channel that asks for a key is closed to a peer that has not shown it.
inline constexpr const char* kNoKey = "the other side has not the same key";

/// Why one without a key is closed to a peer that begins with a handshake of TLS.
inline constexpr const char* kHasKey = "the other side has a key, and the job has none";

/// Why one is closed whose peer has said nothing about it.
inline constexpr const char* kClosed = "connection closed";
/// Whether a channel was closed for that, or reset.
bool was_closed(const std::string& why);

class Channel {
 public:
  enum class State { open, waits, closed };
  struct Moved {
    State state = State::open;  ///< waits: nothing can be moved now
    std::size_t bytes = 0;
    std::string why;  ///< closed: the reason, in words
  };

  Channel() = default;
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  virtual Moved read(char* into, std::size_t size) = 0;
  virtual Moved write(const char* from, std::size_t size) = 0;
  /// Whether what it waits for is room in the socket.
  virtual bool waits_for_room() const = 0;
};

/// The bytes as they are.
class PlainChannel : public Channel {
 public:
  explicit PlainChannel(int fd) : fd_(fd) {}
  Moved read(char* into, std::size_t size) override;
  Moved write(const char* from, std::size_t size) override;
  bool waits_for_room() const override { return full_; }

 private:
  const int fd_;
  bool full_ = false;
};

/// The same at the door of a job without a key: a peer with one is told so in its own language, by an alert of TLS, for
/// it would take a closed connection for one that it may try again.
class PlainDoor : public PlainChannel {
 public:
  explicit PlainDoor(int fd) : PlainChannel(fd), fd_(fd) {}
  Moved read(char* into, std::size_t size) override;

 private:
  const int fd_;
  bool looks_for_key_ = true;  // in the first byte
};

}  // namespace lockstep::launch
