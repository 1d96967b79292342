#pragma once

// The two forms of all_gather, for groups that move contiguous tensors of the host.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comm/checks.h"
#include "lockstep/comm/host_memory.h"

namespace lockstep::comm {

/// Collectives::all_gather; gather(outputs, input) puts what the ranks have, by rank. All of its tensors are
/// contiguous, in the host's memory.
template <class Gather>
std::vector<at::Tensor> gather_all(const at::Tensor& tensor, int size, Gather&& gather) {
  check_dense(tensor, "all_gather");
  std::vector<at::Tensor> gathered;
  for (int peer = 0; peer < size; ++peer) gathered.push_back(new_host_room(tensor));
  gather(gathered, host_values(tensor));
  if (!tensor.device().is_cpu())
    for (at::Tensor& one : gathered) one = one.to(tensor.device());
  return gathered;
}

/// Group::all_gather_into_tensor of rank `rank`; the same. The input may be the output of this rank.
template <class Gather>
void gather_into(const at::Tensor& output, const at::Tensor& input, int rank, int size, Gather&& gather) {
  check_all_gather_into(output, input, rank, size);
  const at::Tensor dense = host_room(output);
  gather(parts_of(dense, size), host_values(input));
  if (!dense.is_same(output)) output.detach().copy_(dense);
}

}  // namespace lockstep::comm
