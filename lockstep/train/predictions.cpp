#include "lockstep/train/predictions.h"

#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>

#include <utility>

#include "lockstep/device/choice.h"
#include "lockstep/device/deterministic.h"
#include "lockstep/evaluation/predict.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/train/evaluation.h"
#include "lockstep/train/input.h"
#include "lockstep/train/make_model.h"
#include "lockstep/train/same_data.h"

namespace lockstep::train {
namespace {

// Label, prediction, probability. The largest logit decides: two that differ may have the same share.
at::Tensor rows_of(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor best = logits.argmax(1, /*keepdim=*/true);
  const at::Tensor share = at::softmax(logits, 1).gather(1, best).squeeze(1);
  return at::stack({labels.to(at::kDouble), best.squeeze(1).to(at::kDouble), share.to(at::kDouble)}, 1);
}

}  // namespace

PredictionSummary write_predictions(const PredictOptions& options, const comm::World& world) {
  // Minutes of work must not end at a file that cannot be written.
  evaluation::check_prediction_file(options.output, world);
  const auto test = make_test_batches(options.run);
  const Input input =
      checked_input({.test = test, .task = task_of(*test), .test_set = test->set().fingerprint()}, *world.group());
  const at::Device device = device::choose(options.run.device, world.local_rank());
  if (!device.is_cpu()) device::compute_deterministically();
  const std::shared_ptr<models::ImageModel> model = make_model(options.run, input.task);
  model->to(device);
  parallel::DistributedDataParallel ddp(model, world.group(),
                                        {.amp = amp_of(options.run), .channels_last = options.run.channels_last});
  const at::Tensor rows = evaluation::predict(
      ddp, test, [&](const data::Batch& batch) { return rows_of(ddp(batch.data).cpu(), batch.target); },
      pass_options(options.run, input.task));
  evaluation::write_predictions(options.output, columns_of(rows, test->set()), world);
  world.barrier();  // nobody leaves while a peer can still fail
  return {.samples = rows.size(0), .correct = rows.select(1, 0).eq(rows.select(1, 1)).sum().item<std::int64_t>()};
}

std::vector<evaluation::PredictionColumn> columns_of(const at::Tensor& rows, const data::PictureSet& set) {
  const std::vector<std::string>& classes = set.classes();
  const at::Tensor dense = rows.contiguous();
  const double* row = dense.const_data_ptr<double>();
  std::vector<std::string> files, labels, found;
  for (std::int64_t sample = 0; sample < dense.size(0); ++sample, row += 3) {
    files.push_back(set.file_of(sample));
    labels.push_back(classes.at(std::size_t(row[0])));
    found.push_back(classes.at(std::size_t(row[1])));
  }
  return {{"file", std::move(files)},
          {"label", std::move(labels)},
          {"prediction", std::move(found)},
          {"probability", dense.select(1, 2).to(at::kFloat)}};
}

}  // namespace lockstep::train
