#include "lockstep/device/facts/wanted.h"

#include <charconv>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::device {

Wanted parse_wanted(std::string_view text) {
  constexpr std::string_view kNumbered = "cuda:";
  if (text == "cpu") return {WantedKind::cpu, {}};
  if (text == "cuda") return {WantedKind::cuda, {}};
  if (text == "auto") return {WantedKind::automatic, {}};
  if (!text.starts_with(kNumbered))
    throw UsageError(base::unknown_name("device", base::shown(text), {"cpu", "cuda", "cuda:N", "auto"}));
  const std::string_view number = text.substr(kNumbered.size());
  int index = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  if (error != std::errc() || end != number.data() + number.size() || index < 0)
    throw UsageError("device '" + base::shown(text) + "': behind the colon must be a GPU's number from 0");
  return {WantedKind::cuda, index};
}

}  // namespace lockstep::device
