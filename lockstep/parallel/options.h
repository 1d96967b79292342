#pragma once

// What a user may tell the data-parallel engine.

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/amp/autocast.h"
#include "lockstep/parallel/ema.h"

namespace lockstep::amp {
class GradScaler;
}

namespace lockstep::comm {
class Group;
}

namespace lockstep::parallel {

class Joinable;

/// How gradients are put together to be sent, with an optimizer of torch::optim. In units of 2^20 bytes, each more than
/// 0. Buckets are filled from the last parameter on, each until it holds so much.
struct BucketOptions {
  /// Of each bucket; 25 without a value.
  std::optional<double> bucket_cap_mb = {};
  /// Of the first bucket, which is sent first. Without a value as PyTorch: 1, or bucket_cap_mb where that is given.
  std::optional<double> first_bucket_mb = {};
  /// Of one bucket after the other; the last number is that of all further ones. Instead of the two above.
  std::vector<double> bucket_cap_mb_list = {};
  /// Instead of all of them: the first backward passes try several sizes in turns, and the one with which they were
  /// fastest stays (bucket_trials.h); rank 0 says so on standard error, LoggingData::tried to the program. The bits of
  /// the means do not depend on the size. Not with a communication hook, nor with gradient_as_bucket_view: UsageError.
  bool autotune = false;
};

/// As PyTorch's of DistributedDataParallel; of its three dtypes one. The others are an UsageError that says what there
/// is instead: PyTorch has parameters and module buffers in them while forward runs.
struct MixedPrecision {
  std::optional<at::ScalarType> param_dtype = {};
  /// float16 or bfloat16, in which gradients are exchanged, as by fp16_compress_hook and bf16_compress_hook. For passes
  /// in bfloat16 or float16 see DataParallelOptions::amp.
  std::optional<at::ScalarType> reduce_dtype = {};
  std::optional<at::ScalarType> buffer_dtype = {};
};

/// Where the nodes of a job add up their gradients, with an optimizer of ours.
enum class Reduction {
  /// In the order of one node: the bits do not depend on the nodes, nor on what each has of the ranks. Where each node
  /// has as many shards, a power of two, it sends what it would send in a ring; else a node sends several sums.
  exact,
  /// Each node adds up the shards that it has, and then those sums are added: one sum of each node, as in a ring,
  /// whatever it has of the ranks. The bits depend on that then; they are the same in every run with the same nodes.
  fast
};

/// In what gradients and their sums travel between the nodes of a job, with an optimizer of ours.
enum class Compression {
  /// As they are kept and added up, float32 mostly.
  none,
  /// In 16 bits, half the bytes: each gradient of a shard is rounded, and each sum of the tree over the shards
  /// (summation.h). With Reduction::exact the bits do not depend on the nodes then, as long as there are several; one
  /// node, which sends nothing, has those of `none`. They are the same in every run, and after a restart.
  /// fp16 has 11 bits, of gradients up to 65504; sums of larger ones may be infinite, and one below 6e-5 times the
  /// shards loses bits. bf16 has 8 bits, of gradients of any size.
  fp16,
  bf16
};

struct DataParallelOptions {
  /// Of the model, where a program trains several on one group with optimizers of ours: each has a name of its own, by
  /// which a restart finds its state again. The same on all ranks. See commit_together().
  std::string name = {};
  /// Logical shards S the global batch is cut into, with an optimizer of ours. It decides the bits of the result; the
  /// number of ranks does not. 0: as many as ranks. At least as many as ranks.
  int shards = 0;
  /// Of the random numbers drawn inside shards (dropout): see shard_seed(). The same on all ranks, as `ema` is.
  std::uint64_t seed = 0;
  /// Mixed precision of forward passes through the wrapper, whose result comes in float32. With bf16
  /// and an optimizer of ours, the parameters of linear layers and convolutions (amp/bf16_parameters.h)
  /// become bfloat16 tensors, copies that the update writes; their float32 weights are in state_dict().
  Amp amp = Amp::none;
  /// Parameters may stay without a gradient in some shards, which then count as zeros, or in all of a step's, which
  /// then keep their weights and optimizer state, as with PyTorch's DistributedDataParallel. False: Error naming them.
  bool find_unused_parameters = false;
  /// Keeps the exponential moving average of the weights, for Engine::ema(). Of an optimizer of ours only.
  std::optional<EmaOptions> ema = {};
  /// Pictures and convolution weights in channels-last memory format.
  bool channels_last = false;
  /// With an optimizer of torch::optim each rank has weights of its own. Behind every so many averaged backward passes
  /// the next forward compares them over the ranks, bit for bit, and throws an Error on all that names rank, parameter
  /// and step where one has others. With an optimizer of ours each node has a copy, of weights, optimizer state and
  /// average; behind every so many steps the next one compares those, and throws an Error on all ranks that names node,
  /// parameter and step, with nothing updated. On one node it has nothing to do then. 0: never. The same on all ranks.
  std::uint64_t verify_replicas_every = 0;
  /// Over several nodes, with an optimizer of ours: gradients go to the other nodes in waves, from the last parameters
  /// on, each until it holds so many bytes. A thread of the engine's carries them, each when its parameters have got as
  /// many gradients as in the last step, so while backward computes the next. Where more come behind that, or
  /// zero_grad() drops some, the step sends all of them again, and the next two send them in step(). In one wave, as a
  /// small model's and with 0 any model's, all go out in step(), as they do from a device and within join(). No bit
  /// depends on it. On one node it has nothing to do. The same on all ranks, of which none may be later with a wave
  /// than another one by the group's timeout.
  std::size_t overlap_bytes = std::size_t(2) << 20;
  /// Over several nodes, with an optimizer of ours. The same on all ranks.
  Reduction reduction = Reduction::exact;
  /// Over several nodes, with an optimizer of ours, as fp16_compress_hook and bf16_compress_hook of PyTorch: gradients,
  /// and their sums on the way back, travel in 16 bits. No weights, which with zero1 travel in place of the sums. The
  /// same on all ranks.
  Compression compression = Compression::none;
  /// Over several nodes, with an optimizer of ours: each keeps a share of the optimizer's state (ZeRO stage 1), updates
  /// the weights that it is of, and sends those in place of the sums of gradients: as many bytes, the same bits, and a
  /// little more to send for a norm of the gradients. A node that is lost takes its share with it: then the job goes
  /// back to its last checkpoint, or to what else it begins with (EngineState::start_from), and says so. Checkpoints
  /// are the same; to save one is collective, of all ranks. On one node it has nothing to do, for the state is there
  /// once for all of its ranks. Not with commit_together(), nor with LARS and LAMB, whose norms are over parameters:
  /// UsageError, on one node, too, for another one may come. The same on all ranks.
  bool zero1 = false;
  /// With zero1: the next node has a copy of each share, of which it makes the same by the same gradients. A node that
  /// is lost takes nothing with it then, as long as the next one is left: the job goes on, with another in its place or
  /// with fewer. Twice the memory of a share, and of N nodes (3N - 4) / (2N - 2) of the bytes. The same on all ranks.
  bool zero1_copy = false;

  // As PyTorch's DistributedDataParallel has them. Those that have nothing to do, and those above where they do,
  // because of the optimizer or of each other, are told once by rank 0 on standard error, in the timeline, and by
  // EngineDebug::ignored_options().

  /// The group, where the constructor is given no other.
  std::shared_ptr<comm::Group> process_group = {};
  /// None, or the one device that the module is on: there is one replica per process. UsageError else.
  std::vector<at::Device> device_ids = {};
  /// Before each forward module buffers become rank 0's. False: each rank has its own, in evaluation too.
  bool broadcast_buffers = true;
  /// At construction the models of all ranks are compared, and parameters and module buffers become rank 0's. False:
  /// the ranks have equal ones already.
  bool init_sync = true;
  /// Each backward has the same graph as the first one: gradients come to the same parameters as often. A parameter may
  /// stay without one, or get several in backwards within backward. Error naming the one where that is not so.
  bool static_graph = false;
  /// .grad() are parts of the buckets, which are kept: less is copied, most where zero_grad(false) leaves them.
  bool gradient_as_bucket_view = false;
  /// With find_unused_parameters: buckets without any gradient are not sent. The same ones on all ranks, in each step;
  /// Error naming a parameter where they are not.
  bool skip_all_reduce_unused_params = false;
  MixedPrecision mixed_precision = {};
  BucketOptions buckets = {};
};

/// As PyTorch's DistributedDataParallel.join(); of Engine::join().
struct JoinOptions {
  /// Gradients are divided by the number of ranks, as always; false: by the number of those that still have inputs, so
  /// that the last batches weigh as much as the first.
  bool divide_by_initial_world_size = true;
  /// The first rank without inputs ends the loop of all: Error on all ranks, after which the group can be used.
  bool throw_on_early_termination = false;
  /// By which the loop scales its losses, on all ranks alike. It does not stand still where the inputs are over: with
  /// an optimizer of ours it decides with each step, else it has in the end the state of a rank that ended last. Null:
  /// no loss is scaled.
  amp::GradScaler* scaler = nullptr;
  /// What else has collectives in the loop (join.h), as ZeroRedundancyOptimizer: in the same order on all ranks. Where
  /// there are any, .grad() of a rank without inputs become the means of the others, with an optimizer of torch::optim.
  std::vector<Joinable*> joinables = {};
};

}  // namespace lockstep::parallel
