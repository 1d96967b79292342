#include "lockstep/parallel/option_checks.h"

#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

void check_at_most_one(const std::vector<at::Device>& devices) {
  if (devices.size() > 1)
    throw UsageError("data parallel: device_ids names " + std::to_string(devices.size()) +
                     " devices; a process has one replica, lockstep::DataParallel several");
}

void check_mixed_precision(const MixedPrecision& wanted) {
  if (wanted.param_dtype)
    throw UsageError(
        "data parallel: mixed_precision.param_dtype is not there; DataParallelOptions::amp computes forward and "
        "backward in 16 bits where that is safe");
  if (wanted.buffer_dtype)
    throw UsageError(
        "data parallel: mixed_precision.buffer_dtype is not there; module buffers have the dtype that they were made "
        "with");
  const auto dtype = wanted.reduce_dtype;
  if (dtype && *dtype != at::kHalf && *dtype != at::kBFloat16)
    throw UsageError("data parallel: mixed_precision.reduce_dtype is " + std::string(c10::toString(*dtype)) +
                     "; Half and BFloat16 are possible");
}

}  // namespace

std::shared_ptr<comm::Group> group_of(std::shared_ptr<comm::Group> group, const DataParallelOptions& options) {
  if (!group) group = options.process_group;
  if (!group)
    throw UsageError(
        "data parallel: no group; give world.group(), of lockstep::init(), as second argument or as "
        "process_group");
  if (options.process_group && options.process_group != group)
    throw UsageError("data parallel: process_group is another group than the second argument; give one of them");
  return group;
}

DataParallelOptions for_group(DataParallelOptions options, const comm::Group& group) {
  check_at_most_one(options.device_ids);
  check_mixed_precision(options.mixed_precision);
  if (options.buckets.autotune && options.gradient_as_bucket_view)
    throw UsageError(
        "data parallel: buckets.autotune with gradient_as_bucket_view, where .grad() are parts of buckets that would "
        "change; leave one of them out");
  if (options.zero1_copy && !options.zero1)
    throw UsageError("data parallel: zero1_copy without zero1, of whose shares it makes copies");
  if (options.shards == 0) options.shards = group.size();
  if (options.shards < group.size())
    throw UsageError("data parallel: " + std::to_string(options.shards) + " shards for " +
                     std::to_string(group.size()) + " ranks; every rank needs at least one shard");
  if (options.ema) check(*options.ema);
  return options;
}

void check_device(const std::vector<at::Device>& device_ids, const NamedTensors& trainable) {
  if (device_ids.empty() || trainable.empty()) return;
  const auto& [name, tensor] = trainable.front();
  const at::Device wanted = device_ids.front(), there = tensor.device();
  if (wanted.type() == there.type() && (!wanted.has_index() || !there.has_index() || wanted == there)) return;
  throw UsageError("data parallel: device_ids names '" + wanted.str() + "', but parameter '" + name + "' is on '" +
                   there.str() + "'; move the model there before it is wrapped, by to()");
}

void check_one_backward(int shards, const comm::Group& group) {
  if (shards == group.size()) return;
  throw UsageError("data parallel: " + std::to_string(shards) + " shards on " + std::to_string(group.size()) +
                   " ranks without an optimizer of lockstep::optim, where each backward averages gradients; leave "
                   "shards out, and let no_sync() surround all backwards of a step but the last");
}

void refuse_join_of_several() {
  throw UsageError(
      "data parallel: join() of a model that commits together with others, whose steps a rank without inputs would not "
      "make; leave commit_together() out, or give all ranks as many inputs");
}

void refuse_commit_of_shares() {
  throw UsageError(
      "data parallel: commit_together() of a model with zero1, of which a node that has lost the step before gets it "
      "from no other; leave zero1 out, or commit_together()");
}

// On one node, too: another one may come, at which the job should not end.
void check_needs(const optim::Needs& needs, const DataParallelOptions& options) {
  if (options.zero1 && needs.norms)
    throw UsageError(
        "data parallel: zero1 with an optimizer that takes norms over each parameter (LARS, LAMB), of which a node may "
        "have a part; leave zero1 out, or take another optimizer");
  if (needs.arrays < 0 || needs.arrays > optim::kMaxStateArrays)
    throw UsageError("data parallel: an optimizer with " + std::to_string(needs.arrays) +
                     " numbers of state for each weight; 0 to " + std::to_string(optim::kMaxStateArrays) +
                     " are possible");
  if (needs.groups < 1)
    throw UsageError("data parallel: an optimizer with " + std::to_string(needs.groups) + " groups of parameters");
}

}  // namespace lockstep::parallel
