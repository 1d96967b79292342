#include "lockstep/checkpoint/files/zip_writer.h"

#include <zlib.h>

#include <algorithm>

#include "lockstep/checkpoint/files/little_endian.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint16_t kVersion = 20, kWideVersion = 45;
// Names are UTF-8.
constexpr std::uint16_t kFlags = 0x0800;
// The first day that the format knows: a time would make other bytes of equal weights.
constexpr std::uint16_t kTime = 0, kDate = 0x21;
constexpr std::uint32_t kIn64Bits = 0xffffffff;

std::uint32_t crc_of(const void* data, std::uint64_t bytes) {
  return std::uint32_t(::crc32_z(0, static_cast<const Bytef*>(data), bytes));
}

// What the entry's own header and the list both have.
std::string common_fields(std::uint16_t version, std::uint32_t crc, std::uint32_t bytes, std::size_t name,
                          std::size_t extra) {
  std::string text;
  for (const std::uint16_t field : {version, kFlags, std::uint16_t(0), kTime, kDate}) put_little(text, field);
  for (const std::uint32_t field : {crc, bytes, bytes}) put_little(text, field);
  put_little(text, std::uint16_t(name));
  put_little(text, std::uint16_t(extra));
  return text;
}

// An extra field of 64-bit numbers.
std::string wide_field(std::initializer_list<std::uint64_t> numbers) {
  std::string text;
  put_little(text, std::uint16_t(1));
  put_little(text, std::uint16_t(8 * numbers.size()));
  for (const std::uint64_t number : numbers) put_little(text, number);
  return text;
}

// An extra field that fills up to the alignment, under the name that torch gives it.
std::string padding(std::uint64_t offset) {
  std::string text("FB");
  const std::uint64_t bytes = (kAlignment - (offset + 4) % kAlignment) % kAlignment;
  put_little(text, std::uint16_t(bytes));
  return text + std::string(bytes, 'Z');
}

}  // namespace

ZipWriter::ZipWriter(const std::string& path, std::uint64_t wide_from) : file_(path), wide_from_(wide_from) {}

void ZipWriter::add(const std::string& name, const void* data, std::uint64_t bytes) {
  constexpr std::size_t kFixed = 30;
  const bool wide = bytes >= wide_from_, far = written_ >= wide_from_;
  const std::uint16_t version = wide || far ? kWideVersion : kVersion;
  const std::uint32_t crc = crc_of(data, bytes), narrow = wide ? kIn64Bits : std::uint32_t(bytes);
  std::string extra = wide ? wide_field({bytes, bytes}) : "";
  extra += padding(written_ + kFixed + name.size() + extra.size());
  const std::uint64_t begin = written_;
  std::string header("PK\x03\x04");
  write(header + common_fields(version, crc, narrow, name.size(), extra.size()) + name + extra);
  file_.write(data, bytes);
  written_ += bytes;

  extra = wide && far ? wide_field({bytes, bytes, begin})
          : wide      ? wide_field({bytes, bytes})
          : far       ? wide_field({begin})
                      : "";
  list_ += "PK\x01\x02";
  put_little(list_, version);
  list_ += common_fields(version, crc, narrow, name.size(), extra.size());
  list_ += std::string(2 + 2 + 2 + 4, '\0');  // comment, disk, attributes
  put_little(list_, far ? kIn64Bits : std::uint32_t(begin));
  list_ += name + extra;
  ++count_;
}

void ZipWriter::commit() {
  const std::uint64_t begin = written_, bytes = list_.size();
  const bool wide = begin >= wide_from_ || bytes >= wide_from_ || count_ >= std::min<std::uint64_t>(wide_from_, 0xffff);
  write(list_);
  if (wide) {
    const std::uint64_t end = written_;
    std::string record("PK\x06\x06");
    put_little(record, std::uint64_t(44));  // what follows
    put_little(record, kWideVersion);
    put_little(record, kWideVersion);
    put_little(record, std::uint64_t(0));  // disks
    for (const std::uint64_t number : {count_, count_, bytes, begin}) put_little(record, number);
    record += "PK\x06\x07";
    put_little(record, std::uint32_t(0));
    put_little(record, end);
    put_little(record, std::uint32_t(1));
    write(record);
  }
  std::string record("PK\x05\x06");
  put_little(record, std::uint32_t(0));
  for (int i = 0; i < 2; ++i) put_little(record, wide ? std::uint16_t(0xffff) : std::uint16_t(count_));
  put_little(record, wide ? kIn64Bits : std::uint32_t(bytes));
  put_little(record, wide ? kIn64Bits : std::uint32_t(begin));
  put_little(record, std::uint16_t(0));
  write(record);
  file_.commit();
}

void ZipWriter::write(const std::string& bytes) {
  file_.write(bytes.data(), bytes.size());
  written_ += bytes.size();
}

}  // namespace lockstep::checkpoint
