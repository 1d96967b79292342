#include "lockstep/base/message.h"

#include <cstdlib>

#include "lockstep/base/text.h"

namespace lockstep::base {

// c10::Error::what() is the message, a line end, and c10's backtrace, which begins with these words.
std::string_view without_call_stack(std::string_view what) {
  return what.substr(0, what.find("\nException raised from "));
}

bool call_stacks_wanted() {
  const char* value = std::getenv("TORCH_SHOW_CPP_STACKTRACES");
  return value != nullptr && std::string_view(value) == "1";
}

std::string message_of(const std::exception& error) {
  const std::string_view what = error.what();
  return std::string(call_stacks_wanted() ? what : without_call_stack(what));
}

std::string line_of(std::string_view what) {
  const std::string_view message = without_call_stack(what);
  const bool of_torch = message.size() < what.size();
  return shown(of_torch ? message.substr(0, message.find('\n')) : message);
}

}  // namespace lockstep::base
