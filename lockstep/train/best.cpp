#include "lockstep/train/best.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/amp/autocast.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/agree.h"
#include "lockstep/checkpoint/store/find.h"
#include "lockstep/checkpoint/store/kept_numbers.h"
#include "lockstep/checkpoint/store/state_json.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/picture_set.h"
#include "lockstep/train/make_model.h"
#include "lockstep/train/thumbnail.h"

namespace lockstep::train {
namespace {

// As the set has them, in front of the transforms.
void picture(Answers& answers, const data::PictureSet& set) {
  for (WrongAnswer& mistake : answers.mistakes) mistake.picture = thumbnail(set.get(mistake.sample).picture);
}

// A model of one's own may have more outputs than the set has classes, or fewer.
void name(Answers& answers, const data::PictureSet& set) {
  const std::vector<std::string>& names = set.classes();
  std::copy_n(names.begin(), std::min(names.size(), answers.classes.size()), answers.classes.begin());
  for (WrongAnswer& mistake : answers.mistakes) mistake.file = set.file_of(mistake.sample);
}

// In which a checkpoint was made, from 0: that of its loader. Its step does not say it, for steps may have been of
// several batches. Collective.
std::int64_t epoch_of(comm::Group& group, const std::string& path) {
  const at::Tensor epoch = at::full({1}, std::int64_t(0), at::kLong);
  comm::or_abort(group, [&] {
    if (group.rank() != 0) return;  // the file is on rank 0's machine
    const auto place = checkpoint::place_of("loader", data::DataLoader::place_in_kept());
    epoch.fill_(checkpoint::numbers_in(checkpoint::read_state(path).kept, place).at("epoch"));
  });
  group.broadcast(epoch);
  return epoch.item<std::int64_t>();
}

}  // namespace

Input with_test_split(const Options& options, const Input& input) {
  if (options.test_split.empty()) return input;
  Options other = options;
  other.val_split = options.test_split;
  other.index_cache.clear();  // it remembers another folder
  Input changed = make_input(other);
  if (changed.task != input.task)
    throw UsageError("--test-split " + options.test_split + " holds samples of another shape than --train-split");
  return changed;
}

Evaluation evaluate_task(const Options& options, const Input& input, torch::nn::Module& model, comm::Group& group,
                         const Forward& forward) {
  const evaluation::PassOptions pass = pass_options(options, input.task);
  if (is_regression(options)) return evaluate_errors(model, group, input.test, forward, options.loss, pass);
  Evaluation found = evaluate(model, group, input.test, forward, pass);
  if (!found.answers || !input.test_pictures) return found;
  name(*found.answers, *input.test_pictures);
  if (group.rank() == 0 && !options.output_dir.empty()) picture(*found.answers, *input.test_pictures);
  return found;
}

StartModel model_to_start(const Options& options, const models::ImageTask& task, const Additions& additions,
                          comm::Group& group) {
  StartModel start = make_start_model(options, task, additions);
  const std::string& which = options.checkpoints.resume;
  if (!options.test_only || which.empty()) return start;
  const checkpoint::Resumed found = checkpoint::found_by_all(group, "", checkpoint::checkpoints_below(which));
  checkpoint::load_on_all(group, *start.model, found.path + "/" + checkpoint::kModelName);
  start.checkpoint = found.path;
  return start;
}

std::optional<EvalEvent> evaluate_best(const Options& options, const Input& input, comm::Group& group,
                                       const Additions& additions, at::Device device) {
  group.barrier();  // rank 0 has written the last one
  const std::string folder = options.output_dir + "/checkpoints";
  // Checkpoints lie on rank 0's machine; on another one a rank would find none, and leave the others in the evaluation.
  std::string is_there;
  comm::or_abort(group, [&] {
    if (group.rank() == 0 && checkpoint::linked_step(folder, checkpoint::kBestName)) is_there = "yes";
  });
  if (comm::broadcast_bytes(group, is_there).empty()) return {};
  const checkpoint::Resumed best = checkpoint::found_by_all(group, folder, checkpoint::kBestName);
  Options bare = options;
  bare.weights.clear();
  const auto model = make_model(bare, input.task, additions);
  // By --monitor ema_… the average is what was found good.
  const bool average = options.checkpoints.monitor.starts_with("ema_");
  checkpoint::load_on_all(group, *model,
                          best.path + "/" + (average ? checkpoint::kAverageName : checkpoint::kModelName));
  model->to(device);
  const Forward forward = [&](const at::Tensor& data) {
    const Autocast autocast(amp_of(options), device.type());
    return model->forward(data.to(device)).cpu();
  };
  const Input test = with_test_split(options, input);
  EvalEvent event{.step = std::int64_t(best.step),
                  .epoch = epoch_of(group, best.path) + 1,
                  .evaluation = evaluate_task(options, test, *model, group, forward)};
  event.part = options.test_split.empty() ? "val" : options.test_split;
  return event;
}

}  // namespace lockstep::train
