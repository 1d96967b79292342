#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::testing {

/// The message of the UsageError that `call` throws; a test failure when it throws none, another
/// type, or a message of more than one line.
template <typename Call>
std::string usage_error(Call call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UsageError& error) {
    std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "no UsageError: " << error.what();
  }
  return {};
}

}  // namespace lockstep::testing
