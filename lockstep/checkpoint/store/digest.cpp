#include "lockstep/checkpoint/store/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>

namespace lockstep::checkpoint {

struct Digest::State {
  XXH3_state_t words;
};

Digest::Digest() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->words); }
Digest::~Digest() = default;

void Digest::add(const void* data, std::size_t bytes) {
  if (bytes > 0) XXH3_128bits_update(&state_->words, data, bytes);
}

std::string Digest::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->words);
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

std::string digest_of(std::string_view bytes) {
  Digest digest;
  digest.add(bytes.data(), bytes.size());
  return digest.text();
}

}  // namespace lockstep::checkpoint
