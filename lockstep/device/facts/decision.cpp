#include "lockstep/device/facts/decision.h"

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::device {
namespace {

// "2 GPUs (CUDA_VISIBLE_DEVICES is '0,1')".
std::string gpus(const CudaFacts& facts) {
  std::string text = std::to_string(facts.devices) + (facts.devices == 1 ? " GPU" : " GPUs");
  if (facts.visible) text += " (CUDA_VISIBLE_DEVICES is '" + base::shown(*facts.visible) + "')";
  return text;
}

}  // namespace

std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string why_none(const CudaFacts& facts) {
  if (!facts.no_library.empty()) return facts.no_library;
  if (!facts.no_driver.empty()) return "no CUDA device: the NVIDIA driver is not there: " + facts.no_driver;
  if (facts.driver > 0 && facts.runtime > 0 && facts.driver / 1000 < facts.runtime / 1000)
    return "the NVIDIA driver is too old: it can do CUDA " + cuda_version(facts.driver) + ", and libtorch needs " +
           cuda_version(facts.runtime) + ": a newer driver, or a libtorch for CUDA " +
           std::to_string(facts.driver / 1000);
  if (facts.devices > 0) return "";
  std::string text = "no CUDA device";
  if (facts.visible) text += ": CUDA_VISIBLE_DEVICES is '" + base::shown(*facts.visible) + "'";
  if (!facts.error.empty()) text += ": the driver says: " + base::shown(facts.error);
  return text;
}

std::optional<int> decide(const Wanted& wanted, int local_rank, const CudaFacts& facts) {
  if (wanted.kind == WantedKind::cpu) return {};
  if (const std::string why = why_none(facts); !why.empty()) {
    if (wanted.kind == WantedKind::automatic) return {};
    throw UsageError("device cuda: " + why);
  }
  const int index = wanted.index.value_or(local_rank);
  if (index < facts.devices) return index;
  const std::string last = std::to_string(facts.devices - 1);
  if (wanted.index)
    throw UsageError("device cuda:" + std::to_string(index) + ": this process may use " + gpus(facts) + ": " +
                     (facts.devices == 1 ? "cuda:0" : "cuda:0 to cuda:" + last));
  throw UsageError("local rank " + std::to_string(local_rank) + " has no GPU of its own: this node has " + gpus(facts) +
                   ": --nproc-per-node " + std::to_string(facts.devices) +
                   ", or --device cuda:0 for all ranks on the first one");
}

void require_for_workers(const Wanted& wanted, int workers, const CudaFacts& facts) {
  if (wanted.kind != WantedKind::cuda || (facts.no_driver.empty() && facts.devices == 0)) return;
  decide(wanted, workers - 1, facts);
}

}  // namespace lockstep::device
