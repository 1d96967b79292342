#include "lockstep/train/predictions.h"

#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>

#include <charconv>
#include <memory>
#include <optional>

#include "lockstep/base/atomic_file.h"
#include "lockstep/evaluation/predict.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/train/evaluation.h"
#include "lockstep/train/input.h"
#include "lockstep/train/recipe.h"
#include "lockstep/train/same_data.h"

namespace lockstep::train {
namespace {

// A field of a CSV file (RFC 4180).
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// The shortest decimal that reads back as the same float32.
std::string shortest_float(float value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

// Label, prediction, probability. The largest logit decides: two that differ may have the same share.
at::Tensor rows_of(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor best = logits.argmax(1, /*keepdim=*/true);
  const at::Tensor share = at::softmax(logits, 1).gather(1, best).squeeze(1);
  return at::stack({labels.to(at::kDouble), best.squeeze(1).to(at::kDouble), share.to(at::kDouble)}, 1);
}

void write(base::AtomicFile& file, const std::string& text) {
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace

PredictionSummary write_predictions(const PredictOptions& options, const comm::World& world) {
  // Minutes of work must not end at a file that cannot be written.
  std::optional<base::AtomicFile> file;
  if (world.rank() == 0) file.emplace(options.output);
  const auto test = make_test_batches(options.run);
  const Input input =
      checked_input({.test = test, .task = task_of(*test), .test_set = test->set().fingerprint()}, *world.group());
  parallel::DistributedDataParallel ddp(
      make_model(options.run, input.task), world.group(),
      {.amp = options.run.amp == "bf16" ? Amp::bf16 : Amp::none, .channels_last = options.run.channels_last});
  const at::Tensor rows = evaluation::predict(
      ddp, test, [&](const data::Batch& batch) { return rows_of(ddp(batch.data), batch.target); },
      {.batch_size = evaluation_chunk(input.task), .num_workers = options.run.workers, .timeout = options.run.timeout});
  if (file) write(*file, predictions_csv(rows, test->set()));
  world.barrier();  // nobody leaves while a peer can still fail
  return {.samples = rows.size(0), .correct = rows.select(1, 0).eq(rows.select(1, 1)).sum().item<std::int64_t>()};
}

std::string predictions_csv(const at::Tensor& rows, const data::PictureSet& set) {
  const std::vector<std::string>& classes = set.classes();
  const at::Tensor dense = rows.contiguous();
  const double* row = dense.const_data_ptr<double>();
  std::string text = "sample,file,label,prediction,probability\n";
  for (std::int64_t sample = 0; sample < dense.size(0); ++sample, row += 3)
    text += std::to_string(sample) + "," + csv_field(set.file_of(sample)) + "," +
            csv_field(classes.at(std::size_t(row[0]))) + "," + csv_field(classes.at(std::size_t(row[1]))) + "," +
            shortest_float(float(row[2])) + "\n";
  return text;
}

}  // namespace lockstep::train
