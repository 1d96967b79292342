#include "lockstep/base/error.h"

#include <cerrno>
#include <cstring>

#include "lockstep/base/descriptor_limit.h"

namespace lockstep {

std::string Failure::to_string() const {
  const int who = rank <= kOnAnotherNode ? kOnAnotherNode - rank : rank;
  std::string text = who >= 0 ? "rank " + std::to_string(who) : std::string("agent");
  if (step > 0) text += ", step " + std::to_string(step);
  if (!phase.empty()) text += ", " + phase;
  return text + ": " + cause;
}

GroupAborted::GroupAborted(Failure failure) : Error(failure.to_string()), failure_(std::move(failure)) {}

int exit_code(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error)) return kExitUsage;
  if (const auto* aborted = dynamic_cast<const GroupAborted*>(&error)) return aborted->failure().exit_code;
  return kExitFailure;
}

void throw_errno(const std::string& what) {
  const int error = errno;
  throw Error(what + ": " + std::strerror(error) + (error == EMFILE ? ": " + base::descriptor_limit_text() : ""));
}

}  // namespace lockstep
