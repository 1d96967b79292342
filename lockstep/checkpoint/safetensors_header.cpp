#include "lockstep/checkpoint/safetensors_header.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::pair<const char*, at::ScalarType> kDtypes[] = {
    {"F64", at::kDouble},
    {"F32", at::kFloat},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"C64", at::kComplexFloat},
    {"I64", at::kLong},
    {"I32", at::kInt},
    {"I16", at::kShort},
    {"I8", at::kChar},
    {"U64", at::kUInt64},
    {"U32", at::kUInt32},
    {"U16", at::kUInt16},
    {"U8", at::kByte},
    {"BOOL", at::kBool},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
};

}  // namespace

std::vector<TensorEntry> parse_header(std::string_view header, std::uint64_t data_bytes, const std::string& file) {
  std::vector<TensorEntry> entries;
  for (HeaderEntry& entry : parse_tensor_header(header, data_bytes, file))
    entries.push_back({std::move(entry.name), dtype_of(entry.dtype), std::move(entry.sizes), entry.begin, entry.end});
  return entries;
}

std::string format_header(const std::vector<TensorEntry>& entries, const std::map<std::string, std::string>& metadata) {
  std::vector<HeaderEntry> plain;
  for (const TensorEntry& entry : entries)
    plain.push_back({entry.name, dtype_name(entry.dtype), entry.shape, entry.begin, entry.end});
  return header_text(plain, metadata);
}

at::ScalarType dtype_of(const std::string& name) {
  for (const auto& [known, dtype] : kDtypes) {
    if (name == known) return dtype;
  }
  throw Error("the dtype " + name + " is none of libtorch's");  // no header that was parsed has one
}

const char* dtype_name(at::ScalarType dtype) {
  for (const auto& [name, known] : kDtypes) {
    if (known == dtype) return name;
  }
  return nullptr;
}

}  // namespace lockstep::checkpoint
