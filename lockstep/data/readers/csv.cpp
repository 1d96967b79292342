#include "lockstep/data/readers/csv.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

constexpr std::uint64_t kChunk = 256 << 10;
constexpr std::size_t kLongestRecord = 64 << 20;
constexpr std::size_t kMostFields = 1 << 22;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 40;
  return text.size() > kMost ? base::shown(text.substr(0, kMost)) + "..." : base::shown(text);
}

CsvRecords::CsvRecords(ByteSource& source, char delimiter, CsvPlace start)
    : source_(source),
      delimiter_(delimiter),
      chunk_(std::clamp<std::uint64_t>(source.limit(), 1, kChunk)),
      base_(start.offset),
      line_(start.line) {
  source_.seek(start.offset);
  if (start.offset != 0) return;
  while (filled_ < kByteOrderMark.size() && fill()) {
  }
  if (std::string_view(buffer_.data(), filled_).starts_with(kByteOrderMark)) begin_ = kByteOrderMark.size();
}

bool CsvRecords::next() {
  for (;;) {
    line_ += lines_;
    begin_ += after_;
    if (!find_end()) return false;
    if (!record().empty()) return true;
  }
}

// Sets length_ and after_; false at the end of the file.
bool CsvRecords::find_end() {
  length_ = after_ = 0;
  lines_ = 0;
  for (std::size_t at = 0;;) {
    const std::size_t newline = find('\n', at, filled_ - begin_);
    const std::size_t quote = find('"', at, newline);
    if (quote < newline) {
      if (quote != 0 && buffer_[begin_ + quote - 1] != delimiter_) {
        fail("a quote inside of a field that does not begin with one");
      }
      at = after_quoted(quote);
      lines_ += std::uint64_t(std::count(&buffer_[begin_ + quote], &buffer_[begin_ + at - 1], '\n'));
      continue;
    }
    if (newline < filled_ - begin_) {
      length_ = newline;
      after_ = newline + 1;
      ++lines_;
      return true;
    }
    at = newline;
    if (!fill()) {
      length_ = after_ = filled_ - begin_;
      return length_ > 0;
    }
  }
}

// The place behind the field that is opened at `opening`.
std::size_t CsvRecords::after_quoted(std::size_t opening) {
  for (std::size_t at = opening + 1;;) {
    const std::size_t quote = find('"', at, filled_ - begin_);
    at = quote;
    if (quote + 1 >= filled_ - begin_) {
      if (fill()) continue;
      if (quote < filled_ - begin_) return quote + 1;
      fail("a quoted field begins in this record and never ends");
    }
    const char follower = buffer_[begin_ + quote + 1];
    at = quote + 2;
    if (follower == '"') continue;
    if (follower == delimiter_ || follower == '\n' || follower == '\r') return quote + 1;
    fail("'" + shown({&follower, 1}) + "' after the closing quote of a field");
  }
}

// In the record: counted from begin_. `to` when it is not there.
std::size_t CsvRecords::find(char wanted, std::size_t from, std::size_t to) const {
  if (from >= to) return to;
  const char* start = buffer_.data() + begin_;
  const void* found = std::memchr(start + from, wanted, to - from);
  return found == nullptr ? to : std::size_t(static_cast<const char*>(found) - start);
}

// More of the file behind what there is of the record, which moves to the front.
bool CsvRecords::fill() {
  const std::size_t kept = filled_ - begin_;
  if (kept > kLongestRecord) fail("a record of more than 64 MiB: is this a table?");
  if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, kept);
  base_ += begin_;
  begin_ = 0;
  // Doubling: a long record is not moved over and over.
  if (kept + chunk_ > buffer_.size()) buffer_.resize(std::max(2 * buffer_.size(), kept + chunk_));
  const std::size_t got = source_.read(buffer_.data() + kept, buffer_.size() - kept);
  filled_ = kept + got;
  return got > 0;
}

std::string_view CsvRecords::record() const {
  std::string_view text(buffer_.data() + begin_, length_);
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

const std::vector<std::string_view>& CsvRecords::fields() {
  const std::string_view text = record();
  unquoted_.resize(text.size());
  char* free = unquoted_.data();
  fields_.clear();
  const char* const end = text.data() + text.size();
  for (const char* at = text.data();; ++at) {
    if (fields_.size() == kMostFields) fail("more than 4194304 fields: is this a table?");
    if (at != end && *at == '"') {
      char* const field = free;
      free = quoted_field(at, end, free);
      fields_.emplace_back(field, std::size_t(free - field));
    } else {
      const void* found = at == end ? nullptr : std::memchr(at, delimiter_, std::size_t(end - at));
      const char* const stop = found == nullptr ? end : static_cast<const char*>(found);
      fields_.emplace_back(at, std::size_t(stop - at));
      at = stop;
    }
    if (at == end) return fields_;
  }
}

// Writes the field that begins at `at` to `free` and returns where it ended there; `at` is then behind its quote.
char* CsvRecords::quoted_field(const char*& at, const char* end, char* free) {
  for (++at; at != end; ++at) {
    if (*at == '"') {
      ++at;
      if (at == end || *at != '"') break;
    }
    *free++ = *at;
  }
  if (at != end && *at != delimiter_) fail("'" + shown({at, 1}) + "' after the closing quote of a field");
  return free;
}

void CsvRecords::fail(const std::string& what) const {
  throw UsageError(source_.path() + ":" + std::to_string(line_) + ": " + what);
}

}  // namespace lockstep::data
