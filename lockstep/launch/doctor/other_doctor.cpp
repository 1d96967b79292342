#include "lockstep/launch/doctor/other_doctor.h"

#include "lockstep/base/error.h"

namespace lockstep::launch {

std::string OtherDoctor::find(const std::string& beginning, TimePoint deadline) {
  while (const auto line = next(deadline))
    if (line->starts_with(beginning)) return line->substr(beginning.size());
  complain(std::chrono::steady_clock::now() < deadline ? "it ended" : "it did not answer in time");
}

void OtherDoctor::send(const std::string& line, TimePoint deadline) {
  if (!write(line, deadline)) complain("it takes no requests");
}

std::string OtherDoctor::ask(const std::string& line, const std::string& beginning, TimePoint deadline) {
  send(line, deadline);
  const auto answer = next(deadline);
  if (!answer) complain("no answer to '" + line.substr(0, line.find(' ')) + "'");
  if (answer->starts_with("error ")) throw Error(answer->substr(6));
  if (!answer->starts_with(beginning)) complain("'" + answer->substr(0, 100) + "' is no answer");
  return answer->substr(beginning.size());
}

void OtherDoctor::complain(const std::string& why) const {
  const std::string said = last_words();
  throw Error(why + (said.empty() ? "" : ": " + said));
}

}  // namespace lockstep::launch
