#include "own_build.h"

#include <unistd.h>

#include <string>

#include "commands.h"
#include "lockstep_commit.h"

namespace lockstep::app {
namespace {

constexpr std::chrono::milliseconds kProbeTime{5'000};

}  // namespace

launch::Build own_build() { return {LOCKSTEP_VERSION, LOCKSTEP_COMMIT, LOCKSTEP_COMPILER, LOCKSTEP_BUILD_TYPE}; }

launch::Section libtorch_of_trainer() {
  const std::string trainer = own_folder() + "/lockstep-trainer";
  if (access(trainer.c_str(), F_OK) != 0) return {"libtorch", {{"trainer", "not found beside lockstep"}}};
  return launch::libtorch_section(trainer, launch::run_probe({trainer, "--libtorch"}, kProbeTime));
}

}  // namespace lockstep::app
