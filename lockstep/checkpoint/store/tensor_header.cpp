#include "lockstep/checkpoint/store/tensor_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::json;

// The header, a tensor of it, the list of its sizes. What is deeper is refused while it is parsed: functions that call
// themselves for each level (dump, a destructor) would find the end of the stack.
constexpr int kDeepestHeader = 3;
// No operator of libtorch takes more.
constexpr std::size_t kMostDimensions = 64;

[[noreturn]] void fail(const std::string& file, std::uint64_t offset, const std::string& what) {
  throw UsageError("'" + file + "': " + what + " at offset " + std::to_string(offset));
}

// A value that is not what belongs there.
std::string described(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_string()) return '"' + brief(value.get_ref<const std::string&>()) + '"';
  return value.dump();
}

// Checks one header against its file; all messages name a place.
class HeaderReader {
 public:
  HeaderReader(std::string_view header, std::uint64_t data_bytes, const std::string& file)
      : header_(header), data_bytes_(data_bytes), file_(file) {}

  std::vector<HeaderEntry> read() const {
    const json root = parse();
    if (!root.is_object()) fail(file_, kTensorHeaderStart, "the header is not a JSON object");
    std::vector<HeaderEntry> entries;
    for (const auto& [name, value] : root.items()) {
      if (name == "__metadata__") {
        check_metadata(value);
      } else {
        entries.push_back(read_entry(name, value));
      }
    }
    check_ranges(entries);
    return entries;
  }

 private:
  // The parser keeps the last of equal keys; the format forbids them, so they are counted here.
  json parse() const {
    std::vector<std::set<std::string>> keys;
    const auto check = [&](int depth, json::parse_event_t event, json& value) {
      const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
      if (opens && depth >= kDeepestHeader) {
        fail(file_, kTensorHeaderStart, "the header is nested more than " + std::to_string(kDeepestHeader) + " deep");
      }
      if (event == json::parse_event_t::object_start) keys.emplace_back();
      if (event == json::parse_event_t::object_end) keys.pop_back();
      if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
        fail(file_, kTensorHeaderStart, "name " + described(value) + " twice in the header");
      }
      return true;
    };
    try {
      return json::parse(header_, check);
    } catch (const json::exception& error) {
      const auto* where = dynamic_cast<const json::parse_error*>(&error);
      const std::uint64_t byte = where && where->byte > 0 ? where->byte - 1 : 0;
      fail(file_, kTensorHeaderStart + byte, "the header is no valid JSON");
    }
  }

  void check_metadata(const json& value) const {
    const auto is_text = [](const json& item) { return item.is_string(); };
    if (value.is_object() && std::all_of(value.begin(), value.end(), is_text)) return;
    fail_at("__metadata__", "is not a map of texts");
  }

  HeaderEntry read_entry(const std::string& name, const json& value) const {
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      fail_at(name, "does not have exactly dtype, shape and data_offsets");
    }
    HeaderEntry entry{.name = name, .dtype = read_dtype(name, value["dtype"])};
    for (const std::uint64_t size : read_sizes(name, value["shape"])) entry.sizes.push_back(std::int64_t(size));
    const std::vector<std::uint64_t> range = read_sizes(name, value["data_offsets"]);
    if (range.size() != 2) fail_at(name, "does not have two data_offsets");
    entry.begin = range[0];
    entry.end = range[1];
    check_bytes(entry);
    return entry;
  }

  std::string read_dtype(const std::string& name, const json& value) const {
    if (value.is_string() && element_bytes(value.get<std::string>()) > 0) return value.get<std::string>();
    fail_at(name, "has the unknown dtype " + described(value));
  }

  std::vector<std::uint64_t> read_sizes(const std::string& name, const json& value) const {
    if (!value.is_array()) fail_at(name, "has " + described(value) + " where a list of sizes belongs");
    if (value.size() > kMostDimensions) fail_at(name, "has a list of " + std::to_string(value.size()) + " sizes");
    std::vector<std::uint64_t> sizes;
    for (const json& size : value) {
      if (!size.is_number_unsigned() || size.get<std::uint64_t>() > std::uint64_t(INT64_MAX)) {
        fail_at(name, "has the impossible size " + described(size));
      }
      sizes.push_back(size.get<std::uint64_t>());
    }
    return sizes;
  }

  void check_bytes(const HeaderEntry& entry) const {
    const std::string range = "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + ")";
    if (entry.begin > entry.end || entry.end > data_bytes_) {
      fail_at(entry.name,
              "has the bytes " + range + " of data that are " + std::to_string(data_bytes_) + " bytes long");
    }
    // Strides count a size of 0 as 1, so they must fit where there are no values, too.
    const std::uint64_t element = element_bytes(entry.dtype);
    std::int64_t extent = std::int64_t(element);
    std::uint64_t bytes = element;
    for (const std::int64_t size : entry.sizes) {
      if (__builtin_mul_overflow(extent, std::max<std::int64_t>(size, 1), &extent)) {
        fail_at(entry.name, "has an impossible shape");
      }
      bytes *= std::uint64_t(size);
    }
    if (bytes != entry.end - entry.begin) {
      fail_at(entry.name, "has the bytes " + range + ", but shape and dtype make " + std::to_string(bytes));
    }
  }

  // Together the ranges are the data: no overlap, no hole, nothing after the last.
  void check_ranges(std::vector<HeaderEntry>& entries) const {
    std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    const std::uint64_t data_start = kTensorHeaderStart + header_.size();
    std::uint64_t next = 0;
    for (const HeaderEntry& entry : entries) {
      if (entry.begin != next) {
        const std::string kind = entry.begin < next ? "overlaps the one before" : "leaves a hole before it";
        fail(file_, data_start + entry.begin, "tensor \"" + brief(entry.name) + "\" " + kind);
      }
      next = entry.end;
    }
    if (next != data_bytes_) fail(file_, data_start + next, "trailing bytes that belong to no tensor");
  }

  // Offset: where the name stands in the header (the start when it is written with escapes).
  [[noreturn]] void fail_at(const std::string& name, const std::string& what) const {
    const std::size_t place = header_.find(json(name).dump());
    fail(file_, kTensorHeaderStart + (place == std::string_view::npos ? 0 : place), '"' + brief(name) + "\" " + what);
  }

  std::string_view header_;
  std::uint64_t data_bytes_;
  const std::string& file_;
};

}  // namespace

std::string read_tensor_header(const InputFile& file) {
  if (file.size() < kTensorHeaderStart) {
    file.fail(file.size(), "the file ends before the 8 bytes of the header's length");
  }
  std::uint64_t length = 0;
  file.read(0, &length, kTensorHeaderStart);
  if (length > file.size() - kTensorHeaderStart) {
    file.fail(0, "a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(file.size()));
  }
  if (length > kLongestHeader) file.fail(0, "a header of " + std::to_string(length) + " bytes, 100 MB is the limit");
  std::string header(length, '\0');
  file.read(kTensorHeaderStart, header.data(), length);
  return header;
}

std::vector<HeaderEntry> parse_tensor_header(std::string_view header, std::uint64_t data_bytes,
                                             const std::string& file) {
  return HeaderReader(header, data_bytes, file).read();
}

std::string brief(std::string_view text) {
  constexpr std::size_t kMost = 80;
  if (text.size() <= kMost) return base::shown(text);
  std::size_t most = kMost;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;  // no half character
  return base::shown(text.substr(0, most)) + "...";
}

bool is_utf8(const std::string& text) {
  try {
    (void)json(text).dump();
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

}  // namespace lockstep::checkpoint
