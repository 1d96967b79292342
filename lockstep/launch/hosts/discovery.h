#pragma once

// `--host-discovery-script`: a script of the user's that prints the hosts there are, asked again and again.

#include <sys/resource.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/flags/host_list.h"
#include "lockstep/launch/hosts/remote_agent.h"

namespace lockstep::launch {

/// How often it is asked, and how long it may take. What it prints beyond the longest is no list.
inline constexpr std::chrono::milliseconds kAskAgain{1'000};
inline constexpr std::chrono::milliseconds kLongestAsk{10'000};
inline constexpr std::size_t kLongestList = 1 << 20;

class Discovery {
 public:
  struct Events {
    std::function<void(const std::vector<HostSlots>& hosts)> found;
    /// No list this time, and why; the next ask follows all the same.
    std::function<void(const std::string& why)> failed;
    /// What the script has written to its standard error, when it has ended; not the same twice running.
    std::function<void(const std::string& lines)> said;
  };

  /// `script` is a command for the shell. None of `events` may end this object. Throws
  /// nothing where there is no process to be had: that is no list, as with a script that fails.
  Discovery(EventLoop& loop, std::string script, const Signals& signals, const rlimit& descriptors, Events events);

 private:
  void ask();
  void on_end(int code);

  EventLoop& loop_;
  const std::string script_;
  const Signals& signals_;
  const rlimit& descriptors_;
  const Events events_;
  std::string output_, errors_, said_;
  bool late_ = false;
  std::unique_ptr<RemoteAgent> run_;
  EventLoop::Handle next_, deadline_;
};

}  // namespace lockstep::launch
