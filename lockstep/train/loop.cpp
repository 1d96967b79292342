#include "lockstep/train/loop.h"

#include <torch/nn/functional/loss.h>

#include <chrono>
#include <filesystem>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/train/same_data.h"

namespace lockstep::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Adds the time of its scope to a counter.
class Timed {
 public:
  explicit Timed(double& counter) : counter_(counter) {}
  ~Timed() { counter_ += seconds_since(start_); }

 private:
  double& counter_;
  Clock::time_point start_ = Clock::now();
};

RunSize size_of(const Options& options, int world_size, const Input& input) {
  RunSize size{.world_size = world_size};
  size.train_samples = input.train ? input.train->size() : 0;
  size.plan = plan_batch(options, world_size, size.train_samples);
  if (input.mix && size.plan.shard_batch < 2)
    throw UsageError(
        "--mixup-alpha and --cutmix-alpha mix the samples of a shard, and a shard has only one: a larger "
        "--batch-size, or fewer --logical-shards");
  if (reads_data(options)) size.total_steps = steps_in_run(options, steps_per_epoch(size.plan, size.train_samples));
  return size;
}

std::filesystem::path folder_of(const std::string& file) {
  return std::filesystem::absolute(file).lexically_normal().parent_path();
}

// Hours of training must not end at a file that cannot be written. A new run directory needs
// no look: that it can be made is the proof.
void check_target(const std::string& file, const std::string& output_dir) {
  if (file.empty()) return;
  std::error_code ignored;
  const auto run = output_dir.empty() ? std::filesystem::path() : folder_of(output_dir + "/.");
  if (folder_of(file + "/.") == run) throw UsageError("cannot write '" + file + "': it is the output directory");
  if (folder_of(file) != run || std::filesystem::exists(run, ignored)) base::AtomicFile{file};
}

}  // namespace

// What can be wrong is looked at before anything is written: the data, then the batch flags,
// then the weights, the file for the new ones, and only then the run directory.
Loop::Loop(const Options& options, const comm::World& world)
    : options_(options),
      group_(*world.group()),
      leader_(world.rank() == 0),
      input_(checked_input(make_input(options), group_)),
      size_(size_of(options, world.size(), input_)),
      model_(train::make_model(options, input_.task)),
      ddp_(model_, world.group(),
           {.shards = size_.plan.shards,
            .seed = std::uint64_t(options.seed),
            .amp = options.amp == "bf16" ? Amp::bf16 : Amp::none,
            .channels_last = options.channels_last}),
      optimizer_(make_optimizer(options, ddp_)) {
  keep_with_state(input_, group_);
  size_.convolutions = has_convolutions(*model_);
  size_.page_size = ddp_.debug().page_size();
  if (leader_) check_target(options.save_weights, options.output_dir);
  size_.restart_count = world.place().restart_count;
  size_.first_step = std::int64_t(ddp_.next_step());
  report_ = make_report(options, world.place());
}

void Loop::run() {
  const Clock::time_point start = Clock::now();
  report_->start(size_);
  if (size_.total_steps > 0) train_steps();
  const std::string hash = ddp_.weights_hash();
  if (leader_ && !options_.save_weights.empty()) save_weights();
  report_->done({.steps = size_.total_steps,
                 .attempt_steps = size_.total_steps - (size_.first_step - 1),
                 .samples = training_samples_,
                 .seconds = seconds_since(start),
                 .training_seconds = training_seconds_,
                 .weights_hash = hash});
  group_.barrier();  // nobody leaves while a peer can still fail
}

void Loop::train_steps() {
  const std::int64_t per_epoch = steps_per_epoch(size_.plan, size_.train_samples);
  const std::int64_t first = size_.first_step;
  loader_ = std::make_unique<data::Loader>(train_source(), first, size_.total_steps + 1, loader_options());
  // Who died after a commit may not have come to say what belongs to that step.
  if (first > 1) report_step(first - 1, place_of_step(first - 1, per_epoch));
  for (std::int64_t number = first; number <= size_.total_steps; ++number) {
    std::optional<data::Batch> batch;
    {
      const Timed timed(since_last_event_.time.data);
      batch = loader_->next();
    }
    step(*batch);
    report_step(number, place_of_step(number, per_epoch));
  }
  loader_.reset();
}

// After the step: what is due then.
void Loop::report_step(std::int64_t number, const StepPlace& place) {
  const bool last = number == size_.total_steps;
  if (number % options_.print_freq == 0 || last) report_train(number, place);
  if (options_.eval && (place.ends_epoch || last)) evaluate(number, place);
}

data::BatchSource Loop::train_source() const {
  const auto seed = std::uint64_t(options_.seed);
  data::BatchSource source = shard_source(input_.train, size_.plan, ddp_.local_shards(), seed);
  if (!input_.mix) return source;
  return mixed_source(std::move(source), {input_.mix, input_.task.classes, seed}, ddp_.local_shards(),
                      steps_per_epoch(size_.plan, size_.train_samples));
}

// Twice as many batches as workers ahead, as Python's DataLoader.
data::LoaderOptions Loop::loader_options() const {
  return {.workers = options_.workers, .prefetch = 2 * options_.workers, .timeout_seconds = options_.timeout};
}

void Loop::step(const data::Batch& batch) {
  {
    const Timed timed(since_last_event_.time.compute);
    for (auto& shard : ddp_.shards(batch)) {
      const at::Tensor loss = torch::nn::functional::cross_entropy(ddp_(shard.data), shard.target);
      loss.backward();
      ddp_.record(loss.item<double>(), shard.target.size(0));
    }
  }
  const Timed timed(since_last_event_.time.step);
  optimizer_->step();
  since_last_event_.samples += ddp_.last_record().samples;
}

void Loop::report_train(std::int64_t step, const StepPlace& place) {
  count_input_work();
  since_last_event_.step = step;
  since_last_event_.epoch = place.epoch + 1;
  since_last_event_.loss = ddp_.last_record().loss;
  since_last_event_.lr = optimizer_->lr();
  since_last_event_.stores = ddp_.debug().stores();
  report_->train(since_last_event_);
  training_seconds_ += since_last_event_.time.total();
  training_samples_ += since_last_event_.samples;
  since_last_event_ = {};
}

// The loader counts from its beginning, an event tells of the time since the last one.
void Loop::count_input_work() {
  InputWork total;
  for (const data::WorkerStatistics& worker : loader_->statistics().workers) {
    total.prepare += worker.source_seconds;
    total.decode += worker.decode_seconds;
  }
  since_last_event_.input = {total.prepare - input_told_.prepare, total.decode - input_told_.decode};
  input_told_ = total;
}

void Loop::evaluate(std::int64_t step, const StepPlace& place) {
  const EvaluationInput input{input_.test, evaluation_chunk(input_.task), loader_options()};
  const auto forward = [this](const at::Tensor& pictures) { return ddp_(pictures); };
  report_->eval(place.epoch + 1, step, train::evaluate(*model_, forward, input, group_));
}

void Loop::save_weights() const {
  checkpoint::write_safetensors(options_.save_weights, ddp_.state_dict(), {{"format", "pt"}});
}

}  // namespace lockstep::train
