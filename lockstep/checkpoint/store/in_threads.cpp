#include "lockstep/checkpoint/store/in_threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/cores.h"

namespace lockstep::checkpoint {
namespace {

constexpr int kMostThreads = 8;  // more only wait for memory

}  // namespace

void in_threads(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  const std::size_t threads = std::min(count, std::size_t(std::min(base::usable_cores(), kMostThreads)));
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(run);
  run();
  others.clear();  // joins
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::checkpoint
