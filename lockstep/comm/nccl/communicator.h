#pragma once

// One communicator of NCCL, on one device: what this rank has queued there, and how far it is.
//
// The host waits for no peer but in the constructor: the communicator is one that does not block. Whatever is under way
// ends, for the host and on the device, when abort() is called, by any thread.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/comm/nccl/nccl_library.h"

namespace lockstep::comm::nccl {

/// Thrown to whoever has something under way in a communicator that was aborted.
class Ended {};

class Communicator {
 public:
  using Clock = std::chrono::steady_clock;
  using Call = std::function<Result(const Table& table, Comm* comm, Stream stream)>;

  /// What was queued and is not done.
  struct Queued {
    std::string what;         ///< "all_reduce of Float x 1000"
    std::uint64_t number;     ///< from 1, of all that this rank queues in the group
    Clock::time_point since;  ///< queued
  };

  explicit Communicator(const Library& library, c10::Device device);
  /// Lets peers finish what they have under way; not longer than kFarewell.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Meets the other ranks. Error with NCCL's words; Ended.
  void connect(const UniqueId& id, int ranks, int rank, std::uint64_t number);

  /// Puts call() behind all that is in the device's current stream, and what comes there behind it. Error, Ended.
  void enqueue(const std::string& what, std::uint64_t number, const Call& call);

  c10::Device device() const { return stream_.device(); }

  // For the thread that watches.
  /// What is under way longest.
  std::optional<Queued> oldest();
  /// What NCCL has found wrong since, in its words; "": nothing.
  std::string error();
  void abort();

 private:
  void end();
  static constexpr std::chrono::seconds kFarewell{5};

  struct Item {
    Queued queued;
    std::optional<c10::Event> end;  ///< nothing yet: NCCL has not taken it
  };
  void begin(const std::string& what, std::uint64_t number);
  /// Waits until NCCL has taken what call() asks for.
  void take(const char* what, const std::function<Result()>& call);
  std::string words_of(Result result) const;

  const Library library_;
  const c10::Stream stream_;
  std::mutex mutex_;
  Comm* comm_ = nullptr;
  bool ended_ = false;
  std::deque<Item> queue_;
};

}  // namespace lockstep::comm::nccl
