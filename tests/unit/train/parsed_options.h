#pragma once

// What `lockstep train` makes of flags.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

inline Parsed parse(const std::vector<const char*>& flags) {
  std::vector<const char*> argv = {"lockstep"};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return parse_options(static_cast<int>(argv.size()), argv.data());
}

inline Options options(const std::vector<const char*>& flags) {
  const Parsed parsed = parse(flags);
  EXPECT_EQ(parsed.text, "");
  return parsed.options;
}

/// The message of the UsageError that the flags cause; it must be one line.
inline std::string refusal(const std::vector<const char*>& flags) {
  try {
    parse(flags);
  } catch (const UsageError& error) {
    std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  ADD_FAILURE() << "accepted";
  return "";
}

}  // namespace lockstep::train
