#include "lockstep/train/run_files.h"

#include "lockstep/rendezvous/run_id.h"

namespace lockstep::train {

RunFiles::RunFiles(const Options& options, const rendezvous::Place& place)
    : EventObserver(options),
      files_(options.output_dir, options_json(options),
             {.run_id = rendezvous::run_id(place),
              .attempt = place.restart_count,
              .overwrite = options.overwrite,
              .goes_on = continues_its_directory(options.checkpoints)}) {}

}  // namespace lockstep::train
