#include "lockstep/base/stop_on.h"

#include <atomic>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::base {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");
std::atomic<bool> somebody_listens{false};

void remember(int) { stop_requested.store(true, std::memory_order_relaxed); }

}  // namespace

StopOn::StopOn(const std::vector<int>& signals) {
  if (somebody_listens.exchange(true)) throw UsageError("StopOn: there is one already; name all signals in it");
  stop_requested.store(false);
  for (const int signal : signals) {
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = remember;
    action.sa_flags = SA_RESTART;  // what waits goes on waiting: the step is finished
    if (sigaction(signal, &action, &before) != 0) {
      restore();
      throw UsageError("StopOn: signal " + std::to_string(signal) + " cannot be caught");
    }
    before_.push_back({signal, before});
  }
}

StopOn::~StopOn() { restore(); }

void StopOn::restore() {
  for (const Before& before : before_) sigaction(before.signal, &before.action, nullptr);
  somebody_listens.store(false);
}

bool StopOn::requested() { return stop_requested.load(std::memory_order_relaxed); }

}  // namespace lockstep::base
