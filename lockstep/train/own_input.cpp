#include "lockstep/train/own_input.h"

#include <sstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/train/checked_labels.h"

namespace lockstep::train {
namespace {

using data::Split;

struct Opened {
  std::shared_ptr<const data::Batches> batches;
  data::Batch first;  ///< of one sample
};

std::string part_name(const OwnSet& set, Split split) {
  return "--dataset " + set.name + ": the part to " + (split == Split::train ? "train" : "evaluate") + " on";
}

std::string shape_of_sample(const at::Tensor& batch) {
  std::ostringstream text;
  text << batch.dtype() << " " << batch.sizes().slice(1);
  return text.str();
}

void check_target(const at::Tensor& target, const OwnSet& set, Split split) {
  const bool numbers = set.classes == 0;
  if (!target.defined()) throw UsageError(part_name(set, split) + " has samples without a target");
  if (target.scalar_type() != (numbers ? at::kFloat : at::kLong) || target.dim() != (numbers ? 2 : 1))
    throw UsageError(part_name(set, split) + " has targets of " + shape_of_sample(target) + ": " +
                     (numbers ? "float [targets]" : "long int []") + " expected");
  if (numbers) return;
  const auto label = target.item<std::int64_t>();
  if (label < 0 || label >= set.classes)
    throw UsageError(part_name(set, split) + " has a sample of class " + std::to_string(label) + ": 0 to " +
                     std::to_string(set.classes - 1) + " expected");
}

Opened open(const Options& options, const OwnSet& set, Split split) {
  Opened opened{.batches = set.samples(opening_of(options, split)).batches()};
  if (!opened.batches || opened.batches->size() < 1) throw UsageError(part_name(set, split) + " has no samples");
  const std::int64_t first[] = {0};
  opened.first = opened.batches->make(0, first);
  check_target(opened.first.target, set, split);
  return opened;
}

// Samples of other than three dimensions as pictures of as many values.
models::ImageTask task_for(const data::Batch& first, const OwnSet& set) {
  const at::Tensor& x = first.data;
  models::ImageTask task{.channels = 1, .height = 1, .width = x.numel()};
  if (x.dim() == 4) task.channels = x.size(1);
  if (x.dim() == 4 || x.dim() == 3) task.height = x.size(-2), task.width = x.size(-1);
  task.classes = set.classes == 0 ? first.target.size(1) : set.classes;
  return task;
}

}  // namespace

Opening opening_of(const Options& options, Split split) {
  return {.split = split, .path = options.data_path, .seed = std::uint64_t(options.seed)};
}

Input make_own_input(const Options& options, const OwnSet& set, bool evaluates) {
  const Opened train = open(options, set, Split::train);
  const bool numbers = set.classes == 0;
  Input input{.train = numbers ? train.batches : with_checked_labels(train.batches, set.classes),
              .task = task_for(train.first, set),
              .train_set = {.samples = train.batches->size(), .classes = std::uint64_t(set.classes)}};
  if (!evaluates) return input;
  const Opened test = open(options, set, Split::test);
  if (task_for(test.first, set).classes != input.task.classes)
    throw UsageError(part_name(set, Split::test) + " has other targets than the one to train on");
  input.test = test.batches;
  input.test_set = {.samples = test.batches->size(), .classes = std::uint64_t(set.classes)};
  return input;
}

}  // namespace lockstep::train
