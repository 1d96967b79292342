#include "lockstep/memory/size_class.h"

#include <bit>

namespace lockstep::memory {

// Numbers below 16 are classes of their own; of larger ones the four leading bits and their place.
std::size_t size_class_of(std::size_t bytes) {
  const std::size_t last = (bytes - 1) / kAlignment;
  const std::size_t place = last < 16 ? 0 : std::bit_width(last) - 4;
  return 8 * place + (last >> place);
}

std::size_t bytes_of_size_class(std::size_t size_class) {
  const std::size_t place = size_class < 16 ? 0 : size_class / 8 - 1;
  const std::size_t leading = size_class - 8 * place;
  return ((leading + 1) << place) * kAlignment;
}

}  // namespace lockstep::memory
