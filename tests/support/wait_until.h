#pragma once

#include <chrono>
#include <stdexcept>
#include <thread>

namespace lockstep::testing {

/// Looks every few milliseconds until ready() is true; throws when that takes 30 s.
template <class Ready>
void wait_until(Ready&& ready) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("waited 30 s in vain");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace lockstep::testing
