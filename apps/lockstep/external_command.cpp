#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "all_commands.h"
#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/plan.h"

namespace lockstep::app {

std::string own_folder() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw Error("cannot find this program's folder: " + error.message());
  return self.parent_path().string();
}

std::string checkpoint_program() { return own_folder() + "/lockstep-checkpoint"; }

void replace_by(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw Error("cannot execute '" + program + "': " + std::strerror(errno));
}

int external_command(const std::string& name, const std::vector<std::string>& arguments) {
  const std::string file = "lockstep-" + name;
  const char* path = std::getenv("PATH");
  const std::string program = launch::find_program(file, own_folder() + ":" + (path != nullptr ? path : ""));
  if (program.empty() || name.find('/') != std::string::npos) {
    AllOptions options;
    std::vector<std::string> known = names_of(all_commands(options));
    known.emplace_back("help");
    throw UsageError(base::unknown_name("command", name, known) + ", and " + file + " is not in PATH");
  }
  replace_by(program, arguments);
}

}  // namespace lockstep::app
