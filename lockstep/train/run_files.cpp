#include "lockstep/train/run_files.h"

#include "lockstep/metrics/csv.h"
#include "lockstep/metrics/jsonl.h"
#include "lockstep/metrics/tensorboard.h"
#include "lockstep/rendezvous/run_id.h"

namespace lockstep::train {

RunFiles::RunFiles(const Options& options, const rendezvous::Place& place)
    : EventObserver(options),
      directory_(metrics::RunDirectory::create(
          options.output_dir, options_json(options),
          {.run_id = rendezvous::run_id(place), .attempt = place.restart_count, .overwrite = options.overwrite})) {
  sinks_.add(std::make_unique<metrics::JsonLines>(directory_.metrics_jsonl()));
  sinks_.add(std::make_unique<metrics::Csv>(directory_.metrics_csv()));
  sinks_.add(std::make_unique<metrics::TensorBoard>(directory_.path(), seconds_now()));
}

}  // namespace lockstep::train
