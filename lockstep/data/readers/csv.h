#pragma once

// Comma-separated text: a file as records, a record as fields, after RFC 4180. Numbers are not known here.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/readers/byte_source.h"

namespace lockstep::data {

/// A field, as a message shows it: base::shown(), and not endless.
std::string shown(std::string_view text);

/// Where a record begins. Lines count from 1.
struct CsvPlace {
  std::uint64_t offset = 0;
  std::uint64_t line = 1;
};

/// The records of a file, front to back. Lines end in LF or CRLF, the last one may lack its end; lines without any
/// character are passed over, and so is a byte order mark (UTF-8) at the beginning. A field that begins with a quote
/// ends with one, may hold delimiters and line ends, and two quotes in it are one; a quote elsewhere is an error. Holds
/// one record and some 256 KiB of the file at a time. Not thread-safe.
class CsvRecords {
 public:
  /// From the record at `start` on, which must be the place of one (or the beginning). The source must outlive it.
  CsvRecords(ByteSource& source, char delimiter, CsvPlace start = {});

  /// Goes to the next record; false after the last. UsageError naming file and line: quotes in wrong places or never
  /// closed, a record of more than 64 MiB, and what the source throws.
  bool next();

  CsvPlace place() const { return {base_ + begin_, line_}; }

  /// The fields of the record, without their quotes; valid until next(). UsageError when something follows a
  /// closing quote, or there are more than 1 Mi.
  const std::vector<std::string_view>& fields();

  /// Throws UsageError("file:line: what") for the record.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  bool find_end();
  std::size_t after_quoted(std::size_t opening);
  std::size_t find(char wanted, std::size_t from, std::size_t to) const;
  bool fill();
  std::string_view record() const;
  char* quoted_field(const char*& at, const char* end, char* free);

  ByteSource& source_;
  const char delimiter_;
  const std::size_t chunk_;  // read at a time
  std::uint64_t base_;       // offset in the file of buffer_[0]
  std::uint64_t line_;       // on which the record begins
  std::vector<char> buffer_;
  std::size_t filled_ = 0;   // of the buffer
  std::size_t begin_ = 0;    // of the record, in the buffer
  std::size_t length_ = 0;   // of the record, without LF
  std::size_t after_ = 0;    // where the next one begins, from begin_
  std::uint64_t lines_ = 0;  // of the record
  std::vector<std::string_view> fields_;
  std::string unquoted_;  // what fields with "" refer to
};

}  // namespace lockstep::data
