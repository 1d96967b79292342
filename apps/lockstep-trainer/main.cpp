// The worker of `lockstep train`: one rank of a run. Started by our agent, torchrun, mpirun,
// srun, or alone.

#include <string_view>

#include "libtorch.h"
#include "lockstep/base/standard_streams.h"
#include "lockstep/train/loop.h"
#include "lockstep/train/options.h"
#include "worker.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc == 2 && std::string_view(argv[1]) == "--libtorch") {  // lockstep env asks
    base::open_standard_streams();
    return app::print_libtorch();
  }
  return app::run_worker([&]() -> app::Task {
    const train::Parsed parsed = train::parse_options(argc, argv);
    const auto work = [options = parsed.options](const World& world) { return train::Loop(options, world).run(); };
    return {.text = parsed.text, .options = parsed.options, .work = work};
  });
}
