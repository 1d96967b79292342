#pragma once

// Ends what hangs: a thread that looks at the communicators of a group of NCCL, and at the group that it wraps.

#include <c10/core/Device.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/nccl/communicator.h"

namespace lockstep::comm::nccl {

class Watchdog {
 public:
  /// `news`: another group of the same ranks, for this object alone: in it the ranks of a node tell how much they have
  /// queued, and wait for each other as in all waits of groups, so that who is late, dead or gone is named. A
  /// collective that is not done `timeout` after what was before it, or an error of NCCL's, aborts `whole`; whatever
  /// aborts `whole` ends the communicators.
  Watchdog(std::shared_ptr<Group> whole, std::shared_ptr<Group> news, std::chrono::milliseconds timeout);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// This rank is about to queue something: its number.
  std::uint64_t next();
  /// The communicator is looked at until the end. It is made of what is given here, and nobody else's.
  Communicator& add(const Library& library, c10::Device device);
  Communicator* find(c10::Device device);

  /// Ends the communicators. Any thread.
  void end(const Failure& failure);
  /// Throws GroupAborted when they have ended.
  void check() const;

 private:
  void run();
  void look();
  Communicator* busiest();
  void wait_for(Communicator& busy, const Communicator::Queued& oldest, base::Member& member);
  void fail(const std::string& cause);

  const std::shared_ptr<Group> whole_;
  const std::shared_ptr<Group> news_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;
  std::optional<Failure> failure_;
  std::map<c10::DeviceIndex, std::unique_ptr<Communicator>> communicators_;
  std::uint64_t queued_ = 0;
  std::thread thread_;
};

}  // namespace lockstep::comm::nccl
