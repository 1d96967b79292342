#pragma once

// How fast one thread writes memory through the caches and past them: what the engine's choice of stores
// (optim/store_choice.h) is about on this machine.

#include <cstddef>
#include <string>

namespace lockstep::launch {

/// Seconds to copy memory, by the fastest of a few runs.
struct StoreSpeed {
  std::size_t bytes = 0;
  double plain = 0;
  double streaming = 0;
};

/// Takes about 20 times as long as copying `bytes` once, and twice the memory. `bytes`: a multiple of 64. Throws
/// Error when there is no memory.
StoreSpeed measure_stores(std::size_t bytes);

/// "streaming faster: 12.3 GB/s, plain 8.0 GB/s": bytes read and written, as the benchmarks count them. Pure.
std::string store_speed_text(const StoreSpeed& speed);

}  // namespace lockstep::launch
