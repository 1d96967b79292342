#pragma once

// A group whose collectives on tensors of a device go by NCCL, from device to device, and wait for nobody on the host.
//
//   auto world = lockstep::init({.backend = "nccl"});

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/nccl/nccl_library.h"
#include "lockstep/comm/nccl/watchdog.h"
#include "lockstep/comm/wrapped_group.h"

namespace lockstep::comm::nccl {

/// Tensors of the host, messages and the barrier are the inner group's. With tensors of a device:
///
/// - Sums, means, products, minima and maxima are NCCL's: the same bits on all ranks, not those of other groups. bool
///   is reduced as "or" and "and"; a NaN in min and max is as NCCL has it.
/// - The call returns at once: what it does is queued behind the current stream of the device, which goes on behind
///   it. A failure comes out of a later call. What the device has made of a collective that has failed is undefined.
/// - All ranks give tensors of devices, each of one device of its own, and agree in dtype and elements: nobody
///   compares.
/// - A collective that is not done within the group's timeout, an error that NCCL finds and the loss of a rank abort
///   the group, on all ranks; the cause names collective and seconds, and those ranks of the node that have not come
///   to it. Another group can be made then, of an inner group of its own.
/// - A rank's first collective on a device waits for the other ranks, on the host.
class NcclGroup final : public WrappedGroup {
 public:
  NcclGroup(std::shared_ptr<Group> inner, Library library);
  ~NcclGroup() override;

  void all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  void broadcast(const at::Tensor& tensor, int root) override;
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override;
  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) override;
  std::shared_ptr<Group> new_group(const std::vector<int>& ranks) override;

 private:
  void enqueue(const char* collective, const at::Tensor& tensor, const Communicator::Call& call);
  Communicator& communicator(c10::Device device);
  void fail(const std::string& cause);

  const std::shared_ptr<Group> inner_;
  const Library library_;
  std::unique_ptr<Watchdog> watchdog_;  ///< from the first collective on a device on
};

}  // namespace lockstep::comm::nccl
