#include "lockstep/train/main.h"

#include "lockstep/train/loop.h"
#include "lockstep/train/options.h"
#include "lockstep/train/options_download.h"
#include "lockstep/train/own_names.h"
#include "lockstep/train/portable_arithmetic.h"
#include "lockstep/train/worker.h"

namespace lockstep::train {

int main(int argc, char** argv, const Additions& additions) {
  const bool is_own = !additions.models.empty() || !additions.datasets.empty();
  return run_worker([&]() -> Task {
    const Parsed parsed = parse_options(argc, argv, is_own && argc > 0 ? names_of(additions, argv[0]) : OwnNames{});
    require_no_download(parsed.options);
    start_with_arithmetic(parsed.options, argv);
    const auto work = [&additions](const Options& options, const comm::World& world) {
      return Loop(options, world, additions).run();
    };
    return {.text = parsed.text, .options = parsed.options, .work = work};
  });
}

}  // namespace lockstep::train
