#include "benchmarks/step/profile.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>

#include "benchmarks/support/statistics.h"

namespace lockstep::bench {
namespace {

// Time in each operator without those that it calls, of this thread. There is one at a time.
class OperatorClock {
 public:
  OperatorClock() {
    current_ = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&enter, &leave).needsIds(false));
  }
  ~OperatorClock() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }
  OperatorClock(const OperatorClock&) = delete;

  const std::map<std::string, double>& seconds() const { return seconds_; }

 private:
  struct Frame {
    double start;
    double callees = 0;
  };

  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction&) {
    current_->stack_.push_back({monotonic_seconds()});
    return nullptr;
  }
  static void leave(const at::RecordFunction& function, at::ObserverContext*) {
    std::vector<Frame>& stack = current_->stack_;
    if (stack.empty()) return;  // entered before the clock ran
    const double whole = monotonic_seconds() - stack.back().start;
    current_->seconds_[function.name()] += whole - stack.back().callees;
    stack.pop_back();
    if (!stack.empty()) stack.back().callees += whole;
  }

  static thread_local OperatorClock* current_;
  at::CallbackHandle handle_;
  std::vector<Frame> stack_;
  std::map<std::string, double> seconds_;
};
thread_local OperatorClock* OperatorClock::current_ = nullptr;

struct Call {
  c10::OperatorName name;
  torch::jit::Stack inputs;
};

bool is_arithmetic(const std::string& name) {
  return name == "aten::convolution" || name == "aten::convolution_backward" || name == "aten::addmm" ||
         name == "aten::mm";
}

thread_local std::vector<Call>* recorded = nullptr;

std::unique_ptr<at::ObserverContext> record(const at::RecordFunction& function) {
  // Under autocast a call that has yet to be cast comes first, and then the one that computes.
  if (at::autocast::is_autocast_enabled(at::kCPU)) return nullptr;
  const auto name = function.operator_name();
  if (name && is_arithmetic(name->name)) {
    const auto inputs = function.inputs();
    recorded->push_back({*name, torch::jit::Stack(inputs.begin(), inputs.end())});
  }
  return nullptr;
}

std::vector<Call> record_step(StepTrainer& trainer) {
  std::vector<Call> calls;
  recorded = &calls;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&record).needsInputs(true));
  trainer.forward_and_backward();
  at::removeCallback(handle);
  trainer.update();
  return calls;
}

double product(c10::IntArrayRef sizes) {
  double all = 1;
  for (const std::int64_t size : sizes) all *= double(size);
  return all;
}

double convolution_flop(const at::Tensor& weight, const at::Tensor& output) {
  return 2 * product(weight.sizes()) * double(output.size(0)) * product(output.sizes().slice(2));
}

// aten::convolution(input, weight, bias, ...), aten::convolution_backward(gradient, input, weight, ..., output_mask),
// aten::addmm(bias, a, b), aten::mm(a, b).
double flop_of(const Call& call, const torch::jit::Stack& results) {
  const auto tensor = [](const c10::IValue& value) { return value.toTensor(); };
  if (call.name.name == "aten::convolution") return convolution_flop(tensor(call.inputs[1]), tensor(results[0]));
  if (call.name.name == "aten::convolution_backward") {
    const auto mask = call.inputs.back().toBoolList();
    return (double(mask.get(0)) + double(mask.get(1))) *
           convolution_flop(tensor(call.inputs[2]), tensor(call.inputs[0]));
  }
  const bool biased = call.name.name == "aten::addmm";
  return 2 * product(tensor(results[0]).sizes()) * double(tensor(call.inputs[biased ? 1 : 0]).size(1));
}

template <class F>
double median_seconds(comm::Group& group, int rounds, F&& run) {
  std::vector<double> seconds;
  group.barrier();
  for (int round = 0; round < rounds + 2; ++round) {
    const double start = monotonic_seconds();
    run();
    if (round >= 2) seconds.push_back(monotonic_seconds() - start);
  }
  return spread_of(std::move(seconds)).median;
}

}  // namespace

std::string kind_of_operator(const std::string& name) {
  static const std::array<std::pair<const char*, const char*>, 22> kinds = {{{"Backward0", "framework"},
                                                                             {"LinearBackward", "framework"},
                                                                             {"autograd::", "framework"},
                                                                             {"torch::autograd", "framework"},
                                                                             {"conv", "convolution"},
                                                                             {"pool", "pooling"},
                                                                             {"batch_norm", "batch norm"},
                                                                             {"layer_norm", "layer norm"},
                                                                             {"attention", "attention"},
                                                                             {"gelu", "activations"},
                                                                             {"addmm", "matrix products"},
                                                                             {"aten::mm", "matrix products"},
                                                                             {"aten::linear", "matrix products"},
                                                                             {"relu", "activations"},
                                                                             {"threshold", "activations"},
                                                                             {"softmax", "loss"},
                                                                             {"nll_loss", "loss"},
                                                                             {"cross_entropy", "loss"},
                                                                             {"copy", "copies and new memory"},
                                                                             {"empty", "copies and new memory"},
                                                                             {"contiguous", "copies and new memory"},
                                                                             {"clone", "copies and new memory"}}};
  for (const auto& [word, kind] : kinds) {
    if (name.find(word) != std::string::npos) return kind;
  }
  return "other operators";
}

StepProfile profile_steps(StepTrainer& trainer, comm::Group& group, int steps) {
  const double start = monotonic_seconds();
  double waiting = 0, update = 0;
  std::map<std::string, double> operators;
  for (int step = 0; step < steps; ++step) {
    {
      const OperatorClock clock;
      trainer.forward_and_backward();
      for (const auto& [name, seconds] : clock.seconds()) operators[name] += seconds / steps;
    }
    const double ready = monotonic_seconds();
    group.barrier();
    const double together = monotonic_seconds();
    trainer.update();
    waiting += together - ready;
    update += monotonic_seconds() - together;
  }
  StepProfile profile{.step = (monotonic_seconds() - start) / steps};
  std::map<std::string, double> kinds;
  double framework = profile.step - (waiting + update) / steps;
  for (const auto& [name, seconds] : operators) {
    if (kind_of_operator(name) == "framework") continue;
    kinds[kind_of_operator(name)] += seconds;
    framework -= seconds;
  }
  profile.parts.assign(kinds.begin(), kinds.end());
  profile.parts.emplace_back("framework", framework);
  profile.parts.emplace_back("waiting", waiting / steps);
  profile.parts.emplace_back("update", update / steps);
  profile.operators.assign(operators.begin(), operators.end());
  std::sort(profile.operators.begin(), profile.operators.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  profile.operators.resize(std::min<std::size_t>(profile.operators.size(), 12));
  return profile;
}

BareOperators time_bare_operators(StepTrainer& trainer, comm::Group& group, bool bf16, int rounds) {
  const std::vector<Call> calls = record_step(trainer);
  const c10::InferenceMode no_autograd;
  BareOperators bare;
  for (const Call& call : calls) {
    const auto operation =
        c10::Dispatcher::singleton().findSchemaOrThrow(call.name.name.c_str(), call.name.overload_name.c_str());
    torch::jit::Stack stack = call.inputs;
    operation.callBoxed(stack);
    bare.gflop += flop_of(call, stack) / 1e9;
    bare.seconds[call.name.name] += median_seconds(group, rounds, [&] {
      torch::jit::Stack arguments = call.inputs;
      operation.callBoxed(arguments);
    });
  }
  constexpr std::int64_t kSize = 1024;
  const at::Tensor a = at::randn({kSize, kSize}).to(bf16 ? at::kBFloat16 : at::kFloat);
  const at::Tensor b = at::randn({kSize, kSize}).to(bf16 ? at::kBFloat16 : at::kFloat);
  const double seconds = median_seconds(group, rounds, [&] { at::mm(a, b); });
  bare.peak_gflops = 2.0 * kSize * kSize * kSize / seconds / 1e9;
  return bare;
}

}  // namespace lockstep::bench
