#include "lockstep/data/samplers/state.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kHexDigits = 16;

std::string to_hex(std::uint64_t value) {
  std::string digits(kHexDigits, '0');
  for (std::size_t i = 0; i < kHexDigits; ++i) digits[i] = "0123456789abcdef"[value >> (4 * (kHexDigits - 1 - i)) & 15];
  return digits;
}

bool from_hex(const std::string& digits, std::uint64_t& value) {
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, 16);
  return digits.size() == kHexDigits && stop == end && error == std::errc();
}

}  // namespace

// FNV-1a over whole entries, each mixed once more: neighbouring indices differ in few bits.
std::uint64_t order_hash(std::span<const std::int64_t> order) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::int64_t index : order) {
    hash = (hash ^ std::uint64_t(index)) * 0x100000001b3u;
    hash ^= hash >> 32;
  }
  return hash;
}

std::string to_json(const SamplerState& state) {
  return nlohmann::json{{"epoch", state.epoch}, {"consumed", state.consumed}, {"order", to_hex(state.order)}}.dump();
}

SamplerState sampler_state(std::string_view json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  SamplerState state;
  const bool right = value.is_object() && value.size() == 3 && value.contains("epoch") && value.contains("consumed") &&
                     value.contains("order") && value["epoch"].is_number_unsigned() &&
                     value["consumed"].is_number_unsigned() && value["consumed"].get<std::uint64_t>() <= INT64_MAX &&
                     value["order"].is_string() && from_hex(value["order"], state.order);
  if (!right) {
    throw UsageError(R"(no sampler state, {"consumed":N,"epoch":N,"order":"16 hex digits"} expected)");
  }
  state.epoch = value["epoch"];
  state.consumed = value["consumed"];
  return state;
}

}  // namespace lockstep::data
