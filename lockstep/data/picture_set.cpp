#include "lockstep/data/picture_set.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

// So much of a sample is fetched ahead: the processor itself goes on with what is read in order.
constexpr std::size_t kAhead = 1024, kCacheLine = 64;

// In random order each sample of small pages costs a walk through the page tables. Where the kernel has no huge ones
// the small ones stay.
void use_huge_pages(std::vector<std::uint8_t>& pixels) {
  constexpr int collapse = 25;  // MADV_COLLAPSE, Linux 6.1; older headers do not name it
  constexpr std::uintptr_t huge = std::uintptr_t(2) << 20;
  const auto first = reinterpret_cast<std::uintptr_t>(pixels.data());
  const std::uintptr_t begin = (first + huge - 1) / huge * huge, end = (first + pixels.size()) / huge * huge;
  if (begin < end) madvise(pixels.data() + (begin - first), end - begin, collapse);
}

}  // namespace

void check_index(std::int64_t index, std::int64_t size) {
  if (index >= 0 && index < size) return;
  throw UsageError("sample " + std::to_string(index) + " asked for, the set has " + std::to_string(size));
}

std::string PictureSet::file_of(std::int64_t) const { return ""; }

void PictureSet::expect(std::int64_t) const {}

SetFingerprint PictureSet::fingerprint() const { return {.samples = size(), .classes = hash_of(classes())}; }

void check_class_names(const std::vector<std::string>& classes, const std::string& of) {
  std::map<std::string_view, std::size_t> labels;
  for (std::size_t label = 0; label < classes.size(); ++label) {
    const auto [first, is_new] = labels.emplace(classes[label], label);
    if (!is_new)
      throw UsageError(of + ": '" + base::shown(classes[label]) + "' is the name of two classes, " +
                       std::to_string(first->second) + " and " + std::to_string(label));
  }
}

MemoryPictures::MemoryPictures(Content content) : content_(std::move(content)) {
  check_class_names(content_.classes, "pictures");
  const std::size_t expected = content_.labels.size() * picture_bytes();
  if (content_.pixels.size() != expected) {
    throw UsageError(std::to_string(content_.pixels.size()) + " bytes of pixels for " +
                     std::to_string(content_.labels.size()) + " labels, " + std::to_string(expected) + " expected");
  }
  for (std::size_t i = 0; i < content_.labels.size(); ++i) {
    const std::int64_t label = content_.labels[i];
    if (label >= 0 && label < std::int64_t(content_.classes.size())) continue;
    throw UsageError("label " + std::to_string(label) + " of sample " + std::to_string(i) + ", there are " +
                     std::to_string(content_.classes.size()) + " classes");
  }
  use_huge_pages(content_.pixels);
}

std::size_t MemoryPictures::picture_bytes() const {
  return std::size_t(content_.size.height) * std::size_t(content_.size.width) * std::size_t(content_.channels);
}

SetFingerprint MemoryPictures::fingerprint() const {
  SetFingerprint print = PictureSet::fingerprint();
  for (const std::int64_t number : {content_.size.height, content_.size.width, content_.channels})
    print.entries = hash_on(print.entries, number);
  for (const std::int64_t label : content_.labels) print.entries = hash_on(print.entries, label);
  return print;
}

void MemoryPictures::expect(std::int64_t index) const {
  if (index < 0 || index >= size()) return;  // for get() to refuse
  const std::uint8_t* pixels = content_.pixels.data() + std::size_t(index) * picture_bytes();
  for (std::size_t byte = 0; byte < std::min(picture_bytes(), kAhead); byte += kCacheLine)
    __builtin_prefetch(pixels + byte);
  __builtin_prefetch(&content_.labels[std::size_t(index)]);
}

ImageView MemoryPictures::pixels(std::int64_t index) const {
  const auto [height, width] = content_.size;
  const std::uint8_t* first = content_.pixels.data() + std::size_t(index) * picture_bytes();
  return {first, height, width, content_.channels, std::ptrdiff_t(width) * content_.channels};
}

Sample MemoryPictures::get(std::int64_t index) const {
  check_index(index, size());
  return {Picture::borrowed(pixels(index)), content_.labels[std::size_t(index)]};
}

}  // namespace lockstep::data
