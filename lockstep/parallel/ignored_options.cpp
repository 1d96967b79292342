#include "lockstep/parallel/ignored_options.h"

namespace lockstep::parallel {

std::vector<std::string> ignored_options(const DataParallelOptions& options, GradientPath path,
                                         const comm::Topology& place) {
  std::vector<std::string> ignored;
  const auto tell = [&](bool given, const char* what) {
    if (given) ignored.emplace_back(what);
  };
  const bool sized = options.buckets.bucket_cap_mb || options.buckets.first_bucket_mb ||
                     !options.buckets.bucket_cap_mb_list.empty() || options.buckets.autotune;
  const bool reduced = options.mixed_precision.reduce_dtype.has_value();
  const bool waves_differ = options.overlap_bytes != DataParallelOptions().overlap_bytes;
  if (path == GradientPath::shared) {
    tell(!options.broadcast_buffers,
         "broadcast_buffers: with an optimizer of lockstep::optim module buffers are committed with each step");
    tell(
        !options.init_sync,
        "init_sync: with an optimizer of lockstep::optim the ranks share one copy of the weights, which begins as rank "
        "0's");
    tell(options.static_graph,
         "static_graph: with an optimizer of lockstep::optim each step may have another graph, and parameters may be "
         "unused");
    tell(options.gradient_as_bucket_view,
         "gradient_as_bucket_view: with an optimizer of lockstep::optim gradients go into shared memory, and .grad() "
         "stays undefined");
    tell(options.skip_all_reduce_unused_params,
         "skip_all_reduce_unused_params: with an optimizer of lockstep::optim no gradient is sent");
    tell(reduced,
         place.nodes == 1
             ? "mixed_precision.reduce_dtype: with an optimizer of lockstep::optim no gradient is sent"
             : "mixed_precision.reduce_dtype: with an optimizer of lockstep::optim gradients travel between nodes as "
               "`compression` says");
    tell(sized, "buckets: with an optimizer of lockstep::optim there are none");
    tell(options.verify_replicas_every > 0 && place.nodes == 1,
         "verify_replicas_every: with an optimizer of lockstep::optim there is one copy of the weights on each node, "
         "and there is one node");
    tell(waves_differ && place.nodes == 1,
         "overlap_bytes: with an optimizer of lockstep::optim nothing is sent within a node, and there is one node");
    tell(options.reduction != Reduction::exact && place.nodes == 1,
         "reduction: there is one node, whose ranks read each other's gradients in shared memory");
    tell(options.compression != Compression::none && place.nodes == 1,
         "compression: there is one node, whose ranks read each other's gradients in shared memory");
    tell(options.zero1 && place.nodes == 1,
         "zero1: there is one node, which has the optimizer's state once for all its ranks, each of which updates its "
         "slice");
    return ignored;
  }
  tell(!options.name.empty(), "name: with an optimizer of torch::optim no state is kept that it would be found by");
  tell(options.shards != place.world, "shards: with an optimizer of torch::optim each rank computes one");
  tell(options.seed != 0, "seed: with an optimizer of torch::optim random numbers are those of torch's generator");
  tell(options.ema.has_value(),
       "ema: only the update of an optimizer of lockstep::optim averages the weights; with one of torch::optim take "
       "lockstep::ExponentialMovingAverage");
  tell(waves_differ, "overlap_bytes: with an optimizer of torch::optim gradients are sent in buckets");
  tell(options.reduction != Reduction::exact,
       "reduction: with an optimizer of torch::optim gradients are averaged in buckets, by collectives of the group");
  tell(options.compression != Compression::none,
       "compression: with an optimizer of torch::optim register_comm_hook() takes bf16_compress_hook and its like");
  tell(options.zero1,
       "zero1: an optimizer of torch::optim is shared out among the ranks by lockstep::ZeroRedundancyOptimizer around "
       "it");
  tell(options.find_unused_parameters && options.static_graph,
       "find_unused_parameters: with static_graph the first backward tells");
  tell(options.skip_all_reduce_unused_params && !options.find_unused_parameters,
       "skip_all_reduce_unused_params: without find_unused_parameters each parameter gets a gradient");
  tell(options.skip_all_reduce_unused_params && options.find_unused_parameters && options.static_graph,
       "skip_all_reduce_unused_params: with static_graph all buckets are sent");
  const bool hooked = path == GradientPath::hooked;
  tell(reduced && hooked, "mixed_precision.reduce_dtype: a communication hook decides what is sent");
  tell(options.gradient_as_bucket_view && (hooked || reduced),
       hooked ? "gradient_as_bucket_view: a communication hook may answer with another tensor"
              : "gradient_as_bucket_view: with mixed_precision.reduce_dtype what was exchanged has another dtype");
  return ignored;
}

}  // namespace lockstep::parallel
