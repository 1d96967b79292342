// The worker of `lockstep train`: one rank of a run. Started by our agent, torchrun, mpirun,
// srun, or alone.

#include "lockstep/train/main.h"

#include <string_view>

#include "libtorch.h"
#include "lockstep/base/standard_streams.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--libtorch") {  // lockstep env asks
    lockstep::base::open_standard_streams();
    return lockstep::app::print_libtorch();
  }
  return lockstep::train::main(argc, argv);
}
