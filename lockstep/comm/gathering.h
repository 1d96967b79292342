#pragma once

// The two forms of all_gather, for groups that move contiguous tensors.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "lockstep/comm/checks.h"

namespace lockstep::comm {

/// Collectives::all_gather; gather(outputs, input) puts what the ranks have, by rank. All of its tensors are
/// contiguous.
template <class Gather>
std::vector<at::Tensor> gather_all(const at::Tensor& tensor, int size, Gather&& gather) {
  check_cpu(tensor, "all_gather");
  const at::Tensor dense = tensor.detach().contiguous();
  std::vector<at::Tensor> gathered;
  for (int peer = 0; peer < size; ++peer) gathered.push_back(at::empty(dense.sizes(), dense.options()));
  gather(gathered, dense);
  return gathered;
}

/// Group::all_gather_into_tensor; the same.
template <class Gather>
void gather_into(const at::Tensor& output, const at::Tensor& input, int size, Gather&& gather) {
  check_all_gather_into(output, input, size);
  const at::Tensor dense = output.is_contiguous() ? output : at::empty(output.sizes(), output.options());
  gather(parts_of(dense, size), input.detach().contiguous());
  if (!dense.is_same(output)) output.detach().copy_(dense);
}

}  // namespace lockstep::comm
