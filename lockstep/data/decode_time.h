#pragma once

// How long a thread has read and decoded files: what is left of a loader's time is transforms.

#include <chrono>

namespace lockstep::data {

/// Counts the time of its scope as reading and decoding by the calling thread. read_image() and pictures
/// of an ImageFolder have one; so should get() of a set of your own that does such work itself. Scopes within scopes
/// count twice.
class DecodeTime {
 public:
  DecodeTime() = default;
  DecodeTime(const DecodeTime&) = delete;
  ~DecodeTime() { spent() += Clock::now() - begun_; }

  /// What the calling thread has spent so since it began.
  static double seconds() { return std::chrono::duration<double>(spent()).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  static Clock::duration& spent() {
    thread_local Clock::duration spent{};
    return spent;
  }

  Clock::time_point begun_ = Clock::now();
};

}  // namespace lockstep::data
