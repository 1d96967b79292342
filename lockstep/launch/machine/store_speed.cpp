#include "lockstep/launch/machine/store_speed.h"

#include <emmintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/segment.h"

namespace lockstep::launch {
namespace {

base::Mapping allocate(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_errno("memory to measure stores with");
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  return {memory, bytes};
}

template <class Store>
double copy_seconds(const base::Mapping& to, const base::Mapping& from, Store&& store) {
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t at = 0; at < from.bytes(); at += sizeof(__m128i))
    store(reinterpret_cast<__m128i*>(to.data() + at),
          _mm_load_si128(reinterpret_cast<const __m128i*>(from.data() + at)));
  _mm_sfence();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

StoreSpeed measure_stores(std::size_t bytes) {
  const base::Mapping from = allocate(bytes);
  const base::Mapping to = allocate(bytes);
  StoreSpeed speed{.bytes = bytes, .plain = 1e9, .streaming = 1e9};
  constexpr int rounds = 5;
  for (int round = 0; round < rounds; ++round) {
    // Twice each: the first finds in the caches what the other kind has left there.
    for (const bool timed : {false, true}) {
      const double seconds = copy_seconds(to, from, [](__m128i* p, __m128i v) { _mm_store_si128(p, v); });
      if (timed) speed.plain = std::min(speed.plain, seconds);
    }
    for (const bool timed : {false, true}) {
      const double seconds = copy_seconds(to, from, [](__m128i* p, __m128i v) { _mm_stream_si128(p, v); });
      if (timed) speed.streaming = std::min(speed.streaming, seconds);
    }
  }
  return speed;
}

std::string store_speed_text(const StoreSpeed& speed) {
  const double plain = 2e-9 * double(speed.bytes) / speed.plain;
  const double streaming = 2e-9 * double(speed.bytes) / speed.streaming;
  char text[80];
  std::snprintf(text, sizeof text, "%s faster: %.1f GB/s, %s %.1f GB/s", plain >= streaming ? "plain" : "streaming",
                std::max(plain, streaming), plain >= streaming ? "streaming" : "plain", std::min(plain, streaming));
  return text;
}

}  // namespace lockstep::launch
