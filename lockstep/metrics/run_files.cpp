#include "lockstep/metrics/run_files.h"

#include <memory>
#include <utility>

#include "lockstep/metrics/csv.h"
#include "lockstep/metrics/jsonl.h"

namespace lockstep::metrics {

RunFiles::RunFiles(const std::string& folder, std::string_view config_json, const RunClaim& claim)
    : directory_(RunDirectory::create(folder, config_json, claim)) {
  sinks_.add(std::make_unique<JsonLines>(directory_.metrics_jsonl()));
  sinks_.add(std::make_unique<Csv>(directory_.metrics_csv()));
  auto tensorboard = std::make_unique<TensorBoard>(directory_.path(), seconds_now());
  tensorboard_ = tensorboard.get();
  sinks_.add(std::move(tensorboard));
}

}  // namespace lockstep::metrics
