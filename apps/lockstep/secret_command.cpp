// lockstep secret new: a key for the agents of a job over several nodes.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/print.h"
#include "lockstep/launch/nodes/secret.h"

namespace lockstep::app {
namespace {

// A file that a shell has just made is readable by all. Before the key is in it, not afterwards.
void keep_from_others(int fd) {
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && fchmod(fd, 0600) != 0)
    throw_errno("secret: cannot make the file readable by its owner alone");
}

}  // namespace

flags::Table secret_table() {
  return {
      .usage = "lockstep secret new > FILE",
      .about =
          "Prints a new key for lockstep run --secret-file FILE. The file is made readable by its owner alone; copy\n"
          "it to each node of the job, as by scp -p.\n",
      .groups = {},
      .prefix = "secret: ",
      .operands = flags::Operands::some};
}

int secret_command(const std::vector<std::string>& arguments) {
  const flags::Parsed parsed = flags::parse(secret_table(), arguments);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  if (parsed.operands != std::vector<std::string>{"new"}) throw UsageError("secret: lockstep secret new > FILE");
  keep_from_others(STDOUT_FILENO);
  return std::fputs(launch::new_secret_text().c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? kExitFailure
                                                                                               : kExitDone;
}

}  // namespace lockstep::app
