#pragma once

// XXH3-128, by which files and tensors are known again; as state/hash.h, but fed in pieces and without libtorch.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::checkpoint {

/// Of bytes that come one piece after the other. Used by one thread at a time.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(const void* data, std::size_t bytes);
  /// Of all bytes so far, as 32 hexadecimal digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Of these bytes.
std::string digest_of(std::string_view bytes);

}  // namespace lockstep::checkpoint
