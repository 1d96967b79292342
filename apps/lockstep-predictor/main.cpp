// The worker of `lockstep predict`: one rank of it. Started by our agent, torchrun, mpirun, srun, or alone.

#include <cstdio>

#include "lockstep/train/options_predict.h"
#include "lockstep/train/portable_arithmetic.h"
#include "lockstep/train/predictions.h"
#include "lockstep/train/worker.h"

namespace lockstep::app {
namespace {

int predict(const train::PredictOptions& options, const World& world) {
  const train::PredictionSummary summary = train::write_predictions(options, world);
  if (world.rank() != 0) return kExitDone;
  std::printf("predicted %lld pictures, accuracy %.2f %%: %s\n", static_cast<long long>(summary.samples),
              100 * double(summary.correct) / double(summary.samples), options.output.c_str());
  return kExitDone;
}

}  // namespace
}  // namespace lockstep::app

int main(int argc, char** argv) {
  using namespace lockstep;
  return train::run_worker([&]() -> train::Task {
    const train::ParsedPredict parsed = train::parse_predict_options(argc, argv);
    train::start_with_arithmetic(parsed.options.run, argv);
    // The worker has made a device of "auto".
    const auto work = [output = parsed.options.output](const train::Options& run, const World& world) {
      return app::predict({.run = run, .output = output}, world);
    };
    return {.text = parsed.text, .options = parsed.options.run, .work = work};
  });
}
