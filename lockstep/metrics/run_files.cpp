#include "lockstep/metrics/run_files.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/text.h"
#include "lockstep/metrics/csv.h"
#include "lockstep/metrics/jsonl.h"

namespace lockstep::metrics {

RunFiles::RunFiles(const std::string& folder, std::string_view config_json, const RunClaim& claim)
    : directory_(RunDirectory::create(folder, config_json, claim)) {
  constexpr WhenRefused kRefused = WhenRefused::leaves_out;
  sinks_.add(std::make_unique<JsonLines>(directory_.metrics_jsonl(), kRefused));
  sinks_.add(std::make_unique<Csv>(directory_.metrics_csv(), kRefused));
  auto tensorboard = std::make_unique<TensorBoard>(directory_.path(), seconds_now(), kRefused);
  tensorboard_ = tensorboard.get();
  sinks_.add(std::move(tensorboard));
}

void RunFiles::show_mistakes(std::int64_t step, const std::vector<MistakePicture>& pictures) {
  const std::string text = mistakes_json(step, pictures);
  try {
    base::AtomicFile file(directory_.mistakes_json());
    file.write(text.data(), text.size());
    file.commit();
  } catch (const Error& error) {
    if (!std::exchange(is_told_, true))
      base::tell(STDERR_FILENO,
                 "lockstep: warning: " + base::shown(error.what()) + "; it stays as it was, training goes on\n");
  }
  for (std::size_t i = 0; i < pictures.size(); ++i)
    tensorboard_->add_png("mistakes/" + std::to_string(i + 1), pictures[i].png, step);
}

}  // namespace lockstep::metrics
