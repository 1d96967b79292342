#include "lockstep/state/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>
#include <sstream>

namespace lockstep::state {

std::uint64_t hash64(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hash128(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

std::string tensors_hash(const std::map<std::string, at::Tensor>& tensors) {
  std::ostringstream list;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor dense = tensor.detach().cpu().contiguous();
    const auto* data = static_cast<const char*>(dense.const_data_ptr());
    list << name << '\n' << c10::toString(dense.scalar_type());
    for (std::int64_t size : dense.sizes()) list << ' ' << size;
    list << '\n' << hash128({data, data == nullptr ? 0 : dense.nbytes()}) << '\n';
  }
  return hash128(list.str());
}

}  // namespace lockstep::state
