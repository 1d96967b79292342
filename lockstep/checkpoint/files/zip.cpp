#include "lockstep/checkpoint/files/zip.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/files/little_endian.h"
#include "lockstep/checkpoint/store/tensor_header.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::uint32_t kEntrySignature = 0x04034b50, kListSignature = 0x02014b50, kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50, kPlace64Signature = 0x07064b50;
constexpr std::size_t kEntryBytes = 30, kListBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kPlace64Bytes = 20;
// A comment of the archive is behind its end record, and its length has 16 bits.
constexpr std::uint64_t kLongestComment = 0xffff;
// What says that the number stands in a field of 64 bits.
constexpr std::uint32_t kIn64 = 0xffffffff;
constexpr unsigned kEncrypted = 1;
// A list of two million entries.
constexpr std::uint64_t kLongestList = 100'000'000;

// Where the list of entries is.
struct ListPlace {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
};

// The end record with fields of 64 bits, which a locator right before the old one leads to.
ListPlace list_place_64(const InputFile& file, std::uint64_t end) {
  if (end < kPlace64Bytes) file.fail(end, "the archive's end has no locator of its 64-bit fields");
  const std::string locator = file.bytes(end - kPlace64Bytes, kPlace64Bytes);
  if (little<std::uint32_t>(locator, 0) != kPlace64Signature)
    file.fail(end - kPlace64Bytes, "the archive's end has no locator of its 64-bit fields");
  const auto at = little<std::uint64_t>(locator, 8);
  if (at > file.size() || file.size() - at < kEnd64Bytes)
    file.fail(end - kPlace64Bytes + 8, "the archive's 64-bit end record is said to lie at " + std::to_string(at) +
                                           ", in a file of " + std::to_string(file.size()) + " bytes");
  const std::string record = file.bytes(at, kEnd64Bytes);
  if (little<std::uint32_t>(record, 0) != kEnd64Signature) file.fail(at, "no 64-bit end record of an archive");
  return {.begin = little<std::uint64_t>(record, 48),
          .bytes = little<std::uint64_t>(record, 40),
          .count = little<std::uint64_t>(record, 32)};
}

ListPlace list_place(const InputFile& file) {
  const std::uint64_t tail = std::min(file.size(), kEndBytes + kLongestComment);
  const std::uint64_t begin = file.size() - tail;
  const std::string bytes = file.bytes(begin, tail);
  for (std::size_t at = bytes.size() < kEndBytes ? 0 : bytes.size() - kEndBytes + 1; at-- > 0;) {
    if (little<std::uint32_t>(bytes, at) != kEndSignature ||
        little<std::uint16_t>(bytes, at + 20) != bytes.size() - at - kEndBytes)
      continue;
    const auto count = little<std::uint16_t>(bytes, at + 10);
    const auto size = little<std::uint32_t>(bytes, at + 12), offset = little<std::uint32_t>(bytes, at + 16);
    if (count == 0xffff || size == kIn64 || offset == kIn64) return list_place_64(file, begin + at);
    return {.begin = offset, .bytes = size, .count = count};
  }
  file.fail(file.size(), "the archive is cut off: no list of its entries ends the file");
}

// The 64-bit numbers of an entry, those that its 32-bit fields say are there, in this order.
class Wide {
 public:
  Wide(const InputFile& file, std::string_view extra, std::uint64_t offset) : file_(file), offset_(offset) {
    for (std::size_t at = 0; at + 4 <= extra.size();) {
      const auto bytes = little<std::uint16_t>(extra, at + 2);
      if (bytes > extra.size() - at - 4) file.fail(offset + at, "an extra field that is longer than all of them");
      if (little<std::uint16_t>(extra, at) == 1) field_ = extra.substr(at + 4, bytes);
      at += 4 + bytes;
    }
  }
  std::uint64_t number(std::uint32_t narrow) {
    if (narrow != kIn64) return narrow;
    if (field_.size() < 8) file_.fail(offset_, "an entry lacks its 64-bit number");
    const auto number = little<std::uint64_t>(field_, 0);
    field_.remove_prefix(8);
    return number;
  }

 private:
  const InputFile& file_;
  std::uint64_t offset_;
  std::string_view field_;
};

std::string quoted(const std::string& name) { return "entry '" + brief(name) + "' "; }

}  // namespace

ZipArchive::ZipArchive(const InputFile& file) : file_(file) {
  const ListPlace place = list_place(file);
  if (place.begin > file.size() || place.bytes > file.size() - place.begin)
    file.fail(file.size(), "the archive's list is said to lie at " + std::to_string(place.begin) + " with " +
                               std::to_string(place.bytes) + " bytes, in a file of " + std::to_string(file.size()));
  if (place.bytes > kLongestList)
    file.fail(place.begin, "the archive's list is longer than 100 MB, which is the limit");
  if (place.count > place.bytes / kListBytes)
    file.fail(place.begin, "the archive's list has " + std::to_string(place.bytes) + " bytes, too few for " +
                               std::to_string(place.count) + " entries");
  list_begin_ = place.begin;
  add_entries(file.bytes(place.begin, place.bytes), place.begin, place.count);
}

void ZipArchive::add_entries(const std::string& list, std::uint64_t begin, std::uint64_t count) {
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (list.size() - at < kListBytes || little<std::uint32_t>(list, at) != kListSignature)
      file_.fail(begin + at, "no entry of the archive's list, where number " + std::to_string(i + 1) + " of " +
                                 std::to_string(count) + " belongs");
    const std::size_t name = little<std::uint16_t>(list, at + 28), extra = little<std::uint16_t>(list, at + 30);
    const std::size_t comment = little<std::uint16_t>(list, at + 32);
    if (name + extra + comment > list.size() - at - kListBytes)
      file_.fail(begin + at, "an entry of the archive's list that is longer than the list");
    const std::size_t fields = at + kListBytes + name;
    Wide wide(file_, std::string_view(list).substr(fields, extra), begin + fields);
    Entry entry{.listed = begin + at,
                .flags = little<std::uint16_t>(list, at + 8),
                .method = little<std::uint16_t>(list, at + 10)};
    entry.bytes = wide.number(little<std::uint32_t>(list, at + 24));
    entry.packed = wide.number(little<std::uint32_t>(list, at + 20));
    entry.header = wide.number(little<std::uint32_t>(list, at + 42));
    const std::string text = list.substr(at + kListBytes, name);
    if (!entries_.emplace(text, entry).second) file_.fail(begin + at, quoted(text) + "is twice in the archive");
    at = fields + extra + comment;
  }
}

std::string ZipArchive::folder_of(const std::string& name) const {
  std::string folder;
  for (const auto& [path, entry] : entries_) {
    const std::size_t slash = path.find('/');
    if (slash == std::string::npos || path.compare(slash + 1, std::string::npos, name) != 0) continue;
    if (!folder.empty()) file_.fail(entry.listed, "a second " + quoted(path) + "in the archive");
    folder = path.substr(0, slash);
  }
  if (folder.empty()) file_.fail(list_begin_, "a zip archive without '" + name + "', so not written by torch.save");
  return folder;
}

Range ZipArchive::range(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) file_.fail(list_begin_, "the archive has no " + quoted(name));
  const Entry& entry = found->second;
  if (entry.method != 0 || (entry.flags & kEncrypted) != 0 || entry.packed != entry.bytes)
    file_.fail(entry.listed, quoted(name) + "is compressed or encrypted; torch.save stores its entries as they are");
  if (entry.header > list_begin_ || list_begin_ - entry.header < kEntryBytes)
    file_.fail(entry.listed, quoted(name) + "is said to lie at " + std::to_string(entry.header) +
                                 ", behind which the list begins at " + std::to_string(list_begin_));
  const std::string header = file_.bytes(entry.header, kEntryBytes);
  const std::uint64_t names = little<std::uint16_t>(header, 26), extra = little<std::uint16_t>(header, 28);
  const std::uint64_t left = list_begin_ - entry.header - kEntryBytes;
  if (little<std::uint32_t>(header, 0) != kEntrySignature || little<std::uint16_t>(header, 8) != 0 ||
      names != name.size() || names + extra > left || file_.bytes(entry.header + kEntryBytes, names) != name)
    file_.fail(entry.header, "no header of " + quoted(name) + "where the archive's list says");
  if (entry.bytes > left - names - extra)
    file_.fail(entry.header, quoted(name) + "has " + std::to_string(entry.bytes) + " bytes, " +
                                 std::to_string(left - names - extra) + " are there");
  return {.begin = entry.header + kEntryBytes + names + extra, .bytes = entry.bytes};
}

std::string ZipArchive::text(const std::string& name, std::uint64_t most) const {
  const Range place = range(name);
  if (place.bytes > most)
    file_.fail(place.begin,
               quoted(name) + "has " + std::to_string(place.bytes) + " bytes, " + std::to_string(most) + " at most");
  return file_.bytes(place.begin, place.bytes);
}

}  // namespace lockstep::checkpoint
