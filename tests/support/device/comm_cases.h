#pragma once

// What groups do with tensors of a device, and the classic path of a module that is on one, beside the same on the
// host: for a stand-in device and for a real one alike.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep::support {

/// Collectives, messages and works on tensors of `device` have the values of the same ones on the host. `exact`: bit
/// for bit, else but for rounding. All ranks.
void expect_collectives_as_on_host(comm::Group& group, at::Device device, bool exact = true);

/// Reads behind what was queued before, in a stream that is not the default one, and is read by what is queued behind.
void expect_order_in_a_stream(comm::Group& group, at::Device device);

/// What the failure of the group says, which this waits for, without a call to it; "" when there is none for 30 s.
std::string failure_of(comm::Group& group);

/// What a job may have besides.
struct ClassicJob {
  parallel::DataParallelOptions options = {};
  parallel::CommHook hook = {};
  bool accumulates = false;     ///< two backwards for each step, the first within no_sync()
  bool leaves_one_out = false;  ///< a layer of every second step
  int more_of_rank_0 = 0;       ///< steps; within join(), whose means are over the ranks that have inputs
};

/// The weights, on the host, of a small net that was trained by torch::optim::SGD on `device`: with
/// DistributedDataParallel each rank on its part of the batches; without a group on the whole ones. The same on every
/// machine but for rounding.
std::vector<at::Tensor> train_classic(const std::shared_ptr<comm::Group>& group, at::Device device,
                                      const ClassicJob& job = {});

/// The largest difference of two elements at one place.
double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

}  // namespace lockstep::support
