#include "lockstep/train/options_sources.h"

namespace lockstep::train {

// A program may know some of the flags only.
bool given(const flags::Parsed& parsed, const std::string& flag) {
  return parsed.sources.contains(flag) && parsed.given(flag);
}

bool only_by_file(const flags::Parsed& parsed, const std::string& flag) {
  return given(parsed, flag) && parsed.sources.at(flag).front() == flags::Source::file;
}

NoMeaning::NoMeaning(std::string flag, const std::string& value, const std::string& why)
    : UsageError(flag + (value.empty() ? "" : " " + value) + " has no meaning " + why), flag_(std::move(flag)) {}

}  // namespace lockstep::train
