// Lets the Python tests look at training on two ranks: lockstep run -n 2 hooks_probe REQUEST
//
// The file: a list of {"what": "ddp", "data_parallel", "join", "zero" or a communication hook's name, "fused": with an
// optimizer of ours, "options": {...}, "steps", "weights": {name: numbers}, "inputs": for each rank, for each of its
// steps, [samples, 12] numbers, "skips": in the same way whether the second layer is left out}. Rank 0 answers with a
// line per case: for each rank the weights behind the last step, and what else its options ask for.

#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/lockstep.h"

namespace {

using nlohmann::json;
using namespace lockstep;

constexpr double kRate = 0.05;

struct Net : torch::nn::Cloneable<Net> {
  explicit Net(bool normalized) : normalized_(normalized) { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(12, 20));
    if (normalized_) norm = register_module("norm", torch::nn::BatchNorm1d(20));
    second = register_module("second", torch::nn::Linear(20, 20));
    third = register_module("third", torch::nn::Linear(20, 8));
  }
  at::Tensor forward(const at::Tensor& x, bool skip = false) {
    at::Tensor hidden = torch::tanh(first(x));
    if (norm) hidden = norm(hidden);
    return third(skip ? hidden : torch::tanh(second(hidden)));
  }
  bool normalized_;
  torch::nn::Linear first = nullptr, second = nullptr, third = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};

at::Tensor tensor(const json& numbers) { return torch::tensor(numbers.get<std::vector<float>>()); }

std::vector<float> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kFloat).contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

PowerSGDOptions power_sgd(const json& j) {
  PowerSGDOptions options{.start_powerSGD_iter = j.value("start_powerSGD_iter", 10)};
  options.matrix_approximation_rank = j.value("matrix_approximation_rank", options.matrix_approximation_rank);
  options.min_compression_rate = j.value("min_compression_rate", options.min_compression_rate);
  options.use_error_feedback = j.value("use_error_feedback", options.use_error_feedback);
  options.warm_start = j.value("warm_start", options.warm_start);
  options.orthogonalization_epsilon = j.value("orthogonalization_epsilon", options.orthogonalization_epsilon);
  options.random_seed = j.value("random_seed", options.random_seed);
  options.batch_tensors_with_same_shape = j.value("batch_tensors_with_same_shape", false);
  return options;
}

void register_hook(parallel::Engine& ddp, const std::shared_ptr<comm::Group>& group, const json& request) {
  const std::string what = request.at("what");
  const json& options = request.at("options");
  const auto power = [&] { return std::make_shared<PowerSGDState>(group, power_sgd(options)); };
  if (what == "allreduce") ddp.register_comm_hook(group, allreduce_hook);
  if (what == "fp16_compress") ddp.register_comm_hook(group, fp16_compress_hook);
  if (what == "bf16_compress") ddp.register_comm_hook(group, bf16_compress_hook);
  if (what == "noop") ddp.register_comm_hook(group, noop_hook);
  if (what == "quantization_pertensor") ddp.register_comm_hook(group, quantization_pertensor_hook);
  if (what == "quantization_perchannel") ddp.register_comm_hook(group, quantization_perchannel_hook);
  if (what == "powerSGD") ddp.register_comm_hook(power(), powerSGD_hook);
  if (what == "batched_powerSGD") ddp.register_comm_hook(power(), batched_powerSGD_hook);
  if (what == "fp16_powerSGD") ddp.register_comm_hook(power(), fp16_compress_wrapper(powerSGD_hook));
  if (what == "bf16_powerSGD") ddp.register_comm_hook(power(), bf16_compress_wrapper(powerSGD_hook));
  if (what == "post_localSGD") {
    const PostLocalSGDOptions local{
        .start_localSGD_iter = 10,
        .post_local_gradient_allreduce = options.value("post_local_gradient_allreduce", false)};
    ddp.register_comm_hook(std::make_shared<PostLocalSGDState>(group, nullptr, local), post_localSGD_hook);
  }
}

DataParallelOptions ddp_options(const json& j) {
  DataParallelOptions options;
  options.find_unused_parameters = j.value("find_unused_parameters", options.find_unused_parameters);
  options.static_graph = j.value("static_graph", options.static_graph);
  options.gradient_as_bucket_view = j.value("gradient_as_bucket_view", options.gradient_as_bucket_view);
  options.broadcast_buffers = j.value("broadcast_buffers", options.broadcast_buffers);
  options.init_sync = j.value("init_sync", options.init_sync);
  options.skip_all_reduce_unused_params = j.value("skip_all_reduce_unused_params", false);
  if (j.contains("bucket_cap_mb")) options.buckets.bucket_cap_mb = j.at("bucket_cap_mb").get<double>();
  if (j.contains("first_bucket_mb")) options.buckets.first_bucket_mb = j.at("first_bucket_mb").get<double>();
  options.buckets.bucket_cap_mb_list = j.value("bucket_cap_mb_list", std::vector<double>());
  if (j.contains("reduce_dtype"))
    options.mixed_precision.reduce_dtype = j.at("reduce_dtype") == "float16" ? at::kHalf : at::kBFloat16;
  if (j.contains("ema_decay"))
    options.ema = EmaOptions{.decay = j.at("ema_decay"),
                             .interval = j.value("ema_interval", std::uint64_t(1)),
                             .warmup_steps = j.value("ema_warmup", std::uint64_t(0))};
  return options;
}

// The rate of the second layer and the third where there are groups; the first has the defaults.
constexpr double kRestRate = kRate / 20, kRestDecay = 0.01;

template <class Optimizer, class Options>
std::unique_ptr<optim::Optimizer> ours(parallel::Engine& ddp, bool groups, const Options& defaults) {
  if (!groups) return std::make_unique<Optimizer>(ddp, defaults);
  return std::unique_ptr<optim::Optimizer>(
      new Optimizer(ddp, {{"first.*"}, {"*", {.lr = kRestRate, .weight_decay = kRestDecay}}}, defaults));
}

template <class Options>
std::vector<torch::optim::OptimizerParamGroup> groups_of(torch::nn::Module& module, bool groups,
                                                         const Options& defaults) {
  if (!groups) return {torch::optim::OptimizerParamGroup(module.parameters())};
  std::vector<at::Tensor> first, rest;
  for (const auto& item : module.named_parameters())
    (item.key().starts_with("first.") ? first : rest).push_back(item.value());
  auto options = std::make_unique<Options>(defaults);
  options->lr(kRestRate).weight_decay(kRestDecay);
  std::vector<torch::optim::OptimizerParamGroup> found;
  found.emplace_back(std::move(first));
  found.emplace_back(std::move(rest), std::move(options));
  return found;
}

at::Tensor first_moment(const torch::optim::AdamParamState& state) { return state.exp_avg(); }
at::Tensor first_moment(const torch::optim::SGDParamState& state) { return state.momentum_buffer(); }

json of_all_ranks(comm::Group& group, const at::Tensor& tensor) {
  json all = json::array();
  for (const at::Tensor& one : group.all_gather(tensor.detach().to(at::kFloat).contiguous()))
    all.push_back(numbers(one));
  return all;
}

// What the optimizer keeps of each parameter: on rank 0, which has it all then; zeros elsewhere.
template <class State, class Wrapped>
void add_consolidated(ZeroRedundancyOptimizer<Wrapped>& zero, const torch::nn::Module& module, comm::Group& group,
                      json& answer) {
  zero.consolidate_state_dict(0);
  for (const auto& item : module.named_parameters()) {
    at::Tensor kept = torch::zeros_like(item.value());
    if (group.rank() == 0)
      kept = first_moment(static_cast<const State&>(*zero.state_dict().state().at(item.value().unsafeGetTensorImpl())));
    answer["state." + item.key()] = of_all_ranks(group, kept);
  }
}

// What a loop has of its own, beside the engine: the steps of one of our optimizers or of one of torch's.
class Stepper {
 public:
  Stepper(parallel::Engine& ddp, const std::shared_ptr<comm::Group>& group, const json& request)
      : ddp_(ddp), options_(request.at("options")), scaler_(scaler_options(options_)) {
    const bool is_zero = request.at("what") == "zero";
    const bool groups = options_.contains("groups");
    const bool adam = options_.value("optimizer", is_zero ? "Adam" : "SGD") == "Adam";
    if (request.value("fused", false)) {
      ddp.state().keep("scaler", scaler_.kept());
      ours_ = adam ? ours<optim::Adam>(ddp, groups, optim::AdamOptions{.lr = kRate / 10})
                   : ours<optim::SGD>(ddp, groups, optim::SGDOptions{.lr = kRate, .momentum = 0.9});
    } else if (adam) {
      make<torch::optim::Adam, torch::optim::AdamParamState>(group, groups, is_zero,
                                                             torch::optim::AdamOptions(kRate / 10));
    } else {
      make<torch::optim::SGD, torch::optim::SGDParamState>(group, groups, is_zero,
                                                           torch::optim::SGDOptions(kRate).momentum(0.9));
    }
    if (request.at("what") == "post_localSGD") {
      averager_.emplace(group, PeriodicModelAveragerOptions{4, 10});
      local_.emplace(*theirs_, *averager_);
    }
  }

  void zero_grad() { ours_ ? ours_->zero_grad() : theirs_->zero_grad(); }
  void backward(const at::Tensor& loss) { scaler_.scale(loss).backward(); }
  void step() {
    if (ours_)
      scaler_.step(*ours_, {.max_norm = max_norm(), .norm_type = norm_type(), .max_value = max_value()});
    else if (local_)
      local_->step();
    else
      step_theirs();
    scaler_.update();
    if (scaler_.is_enabled()) scales_.push_back(float(scaler_.get_scale()));
  }
  const std::vector<float>& scales() const { return scales_; }
  void add_state(json& answer) const {
    if (add_state_) add_state_(answer);
  }

 private:
  template <class Optimizer, class State, class Options>
  void make(const std::shared_ptr<comm::Group>& group, bool groups, bool is_zero, const Options& defaults) {
    const auto parameters = groups_of(ddp_.module(), groups, defaults);
    if (!is_zero) {
      theirs_ = std::make_unique<Optimizer>(parameters, defaults);
      return;
    }
    auto zero = std::make_unique<ZeroRedundancyOptimizer<Optimizer>>(parameters, group, defaults);
    add_state_ = [this, group, made = zero.get()](json& answer) {
      add_consolidated<State>(*made, ddp_.module(), *group, answer);
    };
    theirs_ = std::move(zero);
  }
  static GradScalerOptions scaler_options(const json& j) {
    GradScalerOptions options{.enabled = j.contains("init_scale")};
    if (options.enabled) options.init_scale = j.at("init_scale"), options.growth_interval = j.at("growth_interval");
    return options;
  }
  void step_theirs() {
    scaler_.unscale_(*theirs_);
    const std::vector<at::Tensor> parameters = ddp_.module().parameters();
    if (max_norm() > 0) torch::nn::utils::clip_grad_norm_(parameters, max_norm(), norm_type());
    if (max_value() > 0) torch::nn::utils::clip_grad_value_(parameters, max_value());
    scaler_.step(*theirs_);
  }
  double max_norm() const { return options_.value("max_norm", 0.0); }
  double max_value() const { return options_.value("max_value", 0.0); }
  double norm_type() const {
    const double p = options_.value("norm_type", 2.0);
    return p > 0 ? p : std::numeric_limits<double>::infinity();
  }

  parallel::Engine& ddp_;
  const json& options_;
  GradScaler scaler_;
  std::unique_ptr<optim::Optimizer> ours_;
  std::unique_ptr<torch::optim::Optimizer> theirs_;
  std::optional<PeriodicModelAverager> averager_;
  std::optional<PostLocalSGDOptimizer> local_;
  std::function<void(json&)> add_state_;  ///< of ZeRO's optimizer
  std::vector<float> scales_;
};

// By two forwards, between which the buffers of this rank become others.
void evaluate(DistributedDataParallel<std::shared_ptr<Net>>& ddp, const std::shared_ptr<Net>& model,
              const at::Tensor& x, std::vector<float>& outputs) {
  model->eval();
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < 2; ++i) {
    const std::vector<float> found = numbers(ddp(x));
    outputs.insert(outputs.end(), found.begin(), found.end());
    model->norm->running_mean += 0.1 * ddp.group().rank();
  }
  model->train();
}

// Each part of a step's batch is a pass. no_sync is of all but the last, or of forward or backward of the last alone.
// Returns what evaluations in between gave.
std::vector<float> train(DistributedDataParallel<std::shared_ptr<Net>>& ddp, const std::shared_ptr<Net>& model,
                         Stepper& stepper, const json& request) {
  const json& options = request.at("options");
  const std::string local = options.value("local", "both");
  std::vector<float> outputs;
  const auto rank = std::size_t(ddp.group().rank());
  const json& inputs = request.at("inputs")[rank];
  const int passes = options.value("passes", 1);
  for (std::size_t step = 0; step < inputs.size(); ++step) {
    stepper.zero_grad();
    const std::vector<at::Tensor> parts = tensor(inputs[step]).view({-1, 12}).chunk(passes);
    const bool skip = request.at("skips")[rank][step];
    for (int i = 0; i < passes; ++i) {
      const auto scope = [&](const std::string& half) -> std::shared_ptr<void> {
        const bool is_local = (local == "both" || local == half) && (i + 1 < passes) == (local == "both");
        return options.value("no_sync", false) && is_local ? ddp.no_sync() : nullptr;
      };
      std::shared_ptr<void> guard = scope("forward");
      at::Tensor loss = ddp(parts[std::size_t(i)], skip).square().mean() / passes;
      guard = nullptr;
      if (const int every = options.value("overflow_every", 0); rank == 1 && every > 0 && int(step) % every == 2)
        loss = loss * std::numeric_limits<float>::infinity();
      guard = scope("backward");
      stepper.backward(loss);
    }
    stepper.step();
    if (options.contains("evaluates") && step % 3 == 1)
      evaluate(ddp, model, tensor(inputs[step]).view({-1, 12}), outputs);
  }
  return outputs;
}

// Two replicas on the CPU, in each rank alone.
void train_replicas(const std::shared_ptr<Net>& model, const json& inputs) {
  DataParallel dp(model, {at::kCPU, at::kCPU});
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(kRate).momentum(0.9));
  for (const json& input : inputs) {
    optimizer.zero_grad();
    dp(tensor(input).view({-1, 12})).square().mean().backward();
    optimizer.step();
  }
}

std::shared_ptr<Net> made_model(const json& request, int rank) {
  const auto model = std::make_shared<Net>(request.at("options").value("normalized", false));
  const torch::NoGradGuard no_grad;
  for (auto& item : model->named_parameters()) {
    item.value().copy_(tensor(request.at("weights").at(item.key())).view(item.value().sizes()));
    if (request.at("options").contains("apart")) item.value().add_(rank * 0.01);
  }
  return model;
}

json run(const json& request, const std::shared_ptr<comm::Group>& group) {
  const auto model = made_model(request, group->rank());
  json answer;
  if (request.at("what") == "data_parallel") {
    train_replicas(model, request.at("inputs")[std::size_t(group->rank())]);
    for (const auto& item : model->named_parameters()) answer[item.key()] = of_all_ranks(*group, item.value());
    for (const auto& item : model->named_buffers()) answer[item.key()] = of_all_ranks(*group, item.value());
    return answer;
  }
  const json& options = request.at("options");
  DataParallelOptions wanted = ddp_options(options);
  if (options.contains("process_group")) wanted.process_group = group->new_group({0, 1});
  DistributedDataParallel ddp(model, wanted.process_group ? nullptr : group, wanted);
  register_hook(ddp, group, request);
  Stepper stepper(ddp, group, request);
  if (request.at("what") == "join")
    ddp.join([&] { train(ddp, model, stepper, request); },
             {.divide_by_initial_world_size = options.value("divide_by_initial_world_size", true)});
  else if (const auto outputs = train(ddp, model, stepper, request); !outputs.empty())
    answer["outputs"] = of_all_ranks(*group, torch::tensor(outputs));
  for (const auto& [name, weight] : ddp.state_dict()) answer[name] = of_all_ranks(*group, weight);
  if (options.contains("ema_decay"))
    for (const auto& [name, weight] : ddp.ema().state_dict()) answer["ema." + name] = of_all_ranks(*group, weight);
  if (request.at("what") == "zero") stepper.add_state(answer);
  if (!stepper.scales().empty()) answer["scales"] = of_all_ranks(*group, torch::tensor(stepper.scales()));
  return answer;
}

}  // namespace

int main(int, char** arguments) {
  auto world = init({.idle_cores_hint = false});
  std::ifstream file(arguments[1]);
  for (const json& request : json::parse(file)) {
    const json answer = run(request, world.group());
    if (world.rank() == 0) std::cout << answer << std::endl;
  }
}
