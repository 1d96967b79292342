#include "lockstep/metrics/mistakes_file.h"

#include <nlohmann/json.hpp>

namespace lockstep::metrics {

std::string base64(std::string_view bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = i; j < i + 3; ++j)
      three = three << 8 | (j < bytes.size() ? std::uint32_t(static_cast<unsigned char>(bytes[j])) : 0);
    const std::size_t digits = bytes.size() - i < 3 ? bytes.size() - i + 1 : 4;
    for (std::size_t j = 0; j < 4; ++j) text += j < digits ? kDigits[three >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::string mistakes_json(std::int64_t step, const std::vector<MistakePicture>& pictures) {
  using Json = nlohmann::ordered_json;
  Json samples = Json::array(), files = Json::array();
  for (const MistakePicture& picture : pictures) {
    samples.push_back(picture.sample);
    files.push_back(base64(picture.png));
  }
  return Json{{"step", step}, {"samples", std::move(samples)}, {"pictures", std::move(files)}}.dump() + "\n";
}

}  // namespace lockstep::metrics
