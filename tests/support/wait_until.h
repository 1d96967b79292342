#pragma once

#include <chrono>
#include <stdexcept>
#include <thread>

namespace lockstep::testing {

/// Looks every few milliseconds until ready() is true; throws when that takes two minutes. That is no measure of
/// anything: where a machine takes idle files out of its memory, a Python that imports torch may need half a minute.
template <class Ready>
void wait_until(Ready&& ready) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("waited two minutes in vain");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace lockstep::testing
