#include "lockstep/comm/checks.h"

#include <string>

namespace lockstep::comm {

void check_cpu(const at::Tensor& tensor, const char* collective) {
  if (!tensor.defined()) throw UsageError(std::string(collective) + ": the tensor is undefined");
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided)
    throw UsageError(std::string(collective) + ": needs a dense CPU tensor, this one is on " + tensor.device().str());
}

void check_reducible(const at::Tensor& tensor, ReduceOp op) {
  check_cpu(tensor, "all_reduce");
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kBFloat16:
      return;
    case at::kLong:
      if (op == ReduceOp::sum) return;
      throw UsageError("all_reduce: int64 has no mean; sum and divide");
    default:
      throw UsageError(std::string("all_reduce: dtype ") + c10::toString(tensor.scalar_type()) +
                       " is not one of float32, float64, bfloat16, int64");
  }
}

void check_root(int root, int size) {
  if (root < 0 || root >= size)
    throw UsageError("broadcast: root " + std::to_string(root) + " is not one of the ranks 0 to " +
                     std::to_string(size - 1));
}

}  // namespace lockstep::comm
