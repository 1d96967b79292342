#include "lockstep/train/options_predict.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/values.h"
#include "lockstep/train/options_checks.h"
#include "lockstep/train/options_table.h"

namespace lockstep::train {
namespace {

// The rows of `all` with these names, in their order.
flags::Group picked(const flags::Table& all, const std::string& title, const std::vector<std::string>& names) {
  flags::Group group{title, {}};
  for (const std::string& name : names)
    for (const flags::Group& other : all.groups)
      for (const flags::Flag& flag : other.flags)
        if (flags::name_of(flag) == name) group.flags.push_back(flag);
  return group;
}

}  // namespace

flags::Table predict_table_of(PredictOptions& options) {
  const flags::Table all = table_of(options.run);
  flags::Group job = picked(all, "Job", {"--nproc-per-node", "--model", "--head", "--dataset", "--data-path"});
  job.flags.push_back(
      {"--weights", flags::text(options.run.weights, "FILE"), "Weights of the trained model (safetensors, .pt)"});
  job.flags.push_back({"--weights-map", flags::text(options.run.weights_map, "THEIRS=OURS,..."),
                       "Names in --weights that are others here, or a file with one a line"});
  job.flags.push_back({"--output", flags::text(options.output, "FILE"), "Write the predictions here (CSV)"});
  return {.usage = "lockstep predict --weights FILE --output FILE [options]",
          .about =
              "Says what a trained model sees in the pictures that lockstep train evaluates on: a line for each, with\n"
              "its label, the model's, and how sure it is. Model and data are given as they were in training.\n",
          .groups = {std::move(job),
                     picked(all, "Input",
                            {"--transforms", "--val-resize-size", "--val-crop-size", "--interpolation", "--index-cache",
                             "--train-split", "--val-split", "--workers"}),
                     picked(all, "Arithmetic",
                            {"--amp", "--arithmetic", "--channels-last", "--device", "--threads", "--bind-to",
                             "--timeout"})},
          .version = all.version,
          .prefix = "predict: ",
          .unknown = all.unknown};
}

ParsedPredict parse_predict_options(int argc, const char* const* argv) {
  PredictOptions options;
  const flags::Parsed parsed = flags::parse(predict_table_of(options), {argv + std::min(argc, 1), argv + argc});
  if (!parsed.text.empty()) return {.options = {}, .text = parsed.text};
  settle(options.run, parsed);
  if (is_regression(options.run))
    throw UsageError("predict: --dataset " + options.run.dataset + " holds numbers; this command looks at pictures");
  if (options.run.weights.empty())
    throw UsageError("predict: --weights FILE is missing, the weights of a trained model");
  if (options.output.empty()) throw UsageError("predict: --output FILE is missing, where the predictions go");
  if (!options.output.ends_with(".csv"))
    throw UsageError("predict: --output '" + options.output + "': a name that ends in .csv expected");
  return {.options = options, .text = ""};
}

}  // namespace lockstep::train
