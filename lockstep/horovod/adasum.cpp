#include "lockstep/horovod/adasum.h"

#include <ATen/ops/dot.h>

#include "lockstep/base/error.h"
#include "lockstep/base/tree.h"

namespace lockstep::horovod {
namespace {

at::Tensor adasum_pair(const at::Tensor& a, const at::Tensor& b) {
  const double common = at::dot(a, b).item<double>();
  const double aa = at::dot(a, a).item<double>();
  const double bb = at::dot(b, b).item<double>();
  const double of_a = aa > 0 ? 1 - common / (2 * aa) : 1;
  const double of_b = bb > 0 ? 1 - common / (2 * bb) : 1;
  return a * of_a + b * of_b;
}

at::Tensor adasum_tree(const std::vector<at::Tensor>& tensors, int lo, int hi) {
  if (hi - lo == 1) return tensors[std::size_t(lo)].detach().reshape({-1}).to(at::kDouble);
  const int middle = lo + base::tree_split(hi - lo);
  return adasum_pair(adasum_tree(tensors, lo, middle), adasum_tree(tensors, middle, hi));
}

}  // namespace

at::Tensor adasum(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) throw UsageError("Adasum: needs at least one tensor");
  if (!tensors[0].is_floating_point())
    throw UsageError(std::string("Adasum: ") + c10::toString(tensors[0].scalar_type()) +
                     " is no floating dtype; use Sum");
  return adasum_tree(tensors, 0, int(tensors.size())).to(tensors[0].scalar_type()).view(tensors[0].sizes());
}

}  // namespace lockstep::horovod
