#pragma once

// mistakes.json of a run directory: pictures of the mistakes that the last line `answers` of metrics.jsonl tells of. A
// file of its own, for the pictures of the evaluations before are nobody's any more.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::metrics {

inline constexpr const char* kMistakesName = "mistakes.json";

struct MistakePicture {
  std::int64_t sample = 0;  ///< its number in the set
  std::string png;          ///< the bytes of a PNG file
};

/// As RFC 4648 has it, with = at the end.
std::string base64(std::string_view bytes);

/// The text of the file: `step` of the evaluation, `samples`, and for each its file in base64, `pictures`.
std::string mistakes_json(std::int64_t step, const std::vector<MistakePicture>& pictures);

}  // namespace lockstep::metrics
