#include "lockstep/base/published_text.h"

#include <cstdint>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::base {
namespace {

// The area has two halves. A text is written into the one that the word does not name.
constexpr std::size_t kLongest = std::size_t(1) << 30;

struct TextPlace {
  std::size_t offset = 0;  // from the start of the area
  std::size_t bytes = 0;
  std::uint64_t pack() const { return std::uint64_t(offset) << 31 | bytes; }
  static TextPlace unpack(std::uint64_t word) { return {word >> 31, word & ((std::uint64_t(1) << 31) - 1)}; }
};

}  // namespace

void publish(Segment& segment, std::string_view text) {
  std::atomic<std::uint64_t>& word = segment.control().text;
  if (text.empty()) return word.store(0, std::memory_order_release);
  if (text.size() > kLongest) throw UsageError("segment: a text of " + std::to_string(text.size()) + " bytes");
  if (segment.extent(Area::text).bytes / 2 < text.size()) {
    word.store(0, std::memory_order_release);  // the area moves
    segment.grow(Area::text, 2 * text.size());
  }
  const Extent area = segment.extent(Area::text);
  const std::uint64_t now = word.load(std::memory_order_relaxed);
  const bool is_first = now != 0 && TextPlace::unpack(now).offset == 0;
  const TextPlace place{.offset = is_first ? area.bytes / 2 : 0, .bytes = text.size()};
  const Mapping mapping = segment.map(area.offset, area.bytes, Access::read_write);
  std::memcpy(mapping.data() + place.offset, text.data(), text.size());
  word.store(place.pack(), std::memory_order_release);
}

std::string published(const Segment& segment) {
  const TextPlace place = TextPlace::unpack(segment.control().text.load(std::memory_order_acquire));
  const Extent area = segment.extent(Area::text);
  if (place.bytes == 0 || place.offset + place.bytes > area.bytes) return "";
  const Mapping mapping = segment.map(area.offset, area.bytes, Access::read_only);
  return {reinterpret_cast<const char*>(mapping.data()) + place.offset, place.bytes};
}

}  // namespace lockstep::base
