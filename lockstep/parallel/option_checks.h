#pragma once

// What DataParallelOptions may be. Each throws a UsageError naming the option.

#include <memory>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/named_tensors.h"
#include "lockstep/parallel/options.h"

namespace lockstep::parallel {

/// The group that is given, as second argument (which may be null) or by process_group.
std::shared_ptr<comm::Group> group_of(std::shared_ptr<comm::Group> group, const DataParallelOptions& options);

/// The options, with the number of shards that they mean.
DataParallelOptions for_group(DataParallelOptions options, const comm::Group& group);

/// UsageError unless the parameters, which are on one device, are on that of `device_ids` where it names one.
void check_device(const std::vector<at::Device>& device_ids, const NamedTensors& trainable);

/// Of a loop over shards without an optimizer of ours: a rank may have one, for each backward averages gradients.
void check_one_backward(int shards, const comm::Group& group);

/// join() of a model that commits together with others.
[[noreturn]] void refuse_join_of_several();

/// commit_together() of a model with zero1, on any number of nodes: another one may come.
[[noreturn]] void refuse_commit_of_shares();

/// What an optimizer of ours wants, of a model with these options.
void check_needs(const optim::Needs& needs, const DataParallelOptions& options);

}  // namespace lockstep::parallel
