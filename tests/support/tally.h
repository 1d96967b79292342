#pragma once

// A number that the ranks of a test count up and wait for, whether they are threads or forked processes: what one must
// not do before the others have got so far.

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>

namespace lockstep::testing {

class Tally {
 public:
  /// 0; to be made before the ranks are.
  Tally() {
    void* const page = mmap(nullptr, sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::runtime_error("no memory to share with ranks");
    count_ = new (page) Count(0);
  }
  ~Tally() { munmap(count_, sizeof(Count)); }
  Tally(const Tally&) = delete;
  Tally& operator=(const Tally&) = delete;

  void add() const { ++*count_; }
  /// Waits until so many have come; false when they have not by then.
  bool wait_for(int count, std::chrono::milliseconds at_most = std::chrono::seconds(30)) const {
    const auto deadline = std::chrono::steady_clock::now() + at_most;
    while (*count_ < count) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

 private:
  using Count = std::atomic<int>;
  static_assert(Count::is_always_lock_free);

  Count* count_ = nullptr;
};

}  // namespace lockstep::testing
