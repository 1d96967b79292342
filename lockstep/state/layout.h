#pragma once

// The plan of the state region: where each parameter, optimizer array, module buffer and
// gradient slot lies. Pure data, a function of its inputs alone, equal on all ranks.
//
// One state buffer (there are one or more, so that a step writes another than it reads):
//   [weights][optimizer array 0][optimizer array 1]...[average][bfloat16 copies][module buffers][average buffers]
//   [step record][step counts][named bytes][frozen area's number]
// Behind the state buffers lie the frozen areas: parameters that no step writes. There are as many as state buffers,
// but a step leaves them alone: each state buffer says which one belongs to it. At the end, for they are no state, one
// gradient slot per logical shard of the node, with what the shard used and its shard record, and in front of them the
// block sums of norms: of the gradients, and of each parameter where the optimizer asks for them. Where other nodes
// compute some of the shards, there is room behind the slots for what comes from them: the sums of the gradients of all
// shards, and what each of their shards used, with its record.
// Weights, optimizer arrays and slots share one flat range: element i of each belongs to the
// same weight. Parameters begin on 64-byte edges; the padding between them stays zero.
// The flat range is cut into parts: parameters of one kind, by what their gradients are kept as, whether forward reads
// a bfloat16 copy of them, and which group of the optimizer they are in.
// Where nodes share out the optimizer's state (LayoutOptions::shares), its arrays have room for this node's share of
// the flat range alone, and element i is still addressed from where element 0 would be.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/state/step_record.h"

namespace lockstep::state {

/// What is known of a tensor before it has a place.
struct TensorSpec {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  ///< in elements, dense
  // Of parameters, which are float32:
  int group = 0;                                       ///< the optimizer's, by whose rule it is updated
  c10::ScalarType gradients = c10::ScalarType::Float;  ///< what its gradients are kept as: float32 or bfloat16
  bool bf16_copy = false;                              ///< forward reads a bfloat16 copy, which the update writes
};

struct PlacedParameter {
  TensorSpec spec;
  std::size_t offset = 0;  ///< first element in the flat range
  std::size_t elements = 0;
};

struct PlacedBuffer {
  TensorSpec spec;
  std::size_t offset = 0;  ///< bytes from the start of the module buffers
  std::size_t bytes = 0;
};

/// State that is nobody's here (the best metric, a sampler's position): its owner's bytes, committed with each step.
struct NamedBytes {
  std::string name;
  std::size_t size = 0;
};

struct LayoutOptions {
  int shards = 1;         ///< logical shards S of the job
  int slots = 1;          ///< gradient slots: the shards that this node computes,
  int first_shard = 0;    ///< from this one on
  std::string optimizer;  ///< which one, so that another's arrays are not taken for its own
  int optimizer_arrays = 0;
  int shares = 1;                ///< that the optimizer's arrays are cut into, one for each node; 1: all are here
  int share = 0;                 ///< of these, the one that this node has
  bool copied = false;           ///< and a copy of the one before it, so that each share is on two nodes
  bool average = false;          ///< whether there is a running average of weights and module buffers
  bool parameter_norms = false;  ///< whether there are sums for norms over each parameter
  int state_buffers = 2;         ///< 1: updated in place, where the state dies with the process that updates it
  std::vector<NamedBytes> bytes;
};

/// What a shard did with a parameter in a step; a byte. no_inputs: nothing, for its rank has none left (Engine::join).
enum class ParameterUse : std::uint8_t { none, gradient, frozen, no_inputs };

/// Elements [begin, end) of the flat range.
struct Slice {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const Slice&) const = default;
};

/// A part of the flat range whose parameters are of one kind; it begins on a block edge.
struct Part {
  Slice range;
  int group = 0;
  c10::ScalarType gradients = c10::ScalarType::Float;
  bool bf16_copy = false;
  std::size_t offset = 0;  ///< bytes from the start of a slot to the gradient of the part's first element
  std::size_t copies = 0;  ///< elements from the start of the copies to that of the part's first element
};

class Layout {
 public:
  /// Elements of a block: 64 KiB. Slices end on block edges.
  static constexpr std::size_t kBlock = std::size_t(16) << 10;

  /// UsageError when the gradients of a parameter are to be kept as something else than float32 or bfloat16.
  Layout(std::vector<TensorSpec> parameters, std::vector<TensorSpec> buffers, LayoutOptions options,
         std::vector<TensorSpec> frozen = {});

  const std::vector<PlacedParameter>& parameters() const { return parameters_; }
  const std::vector<PlacedBuffer>& buffers() const { return buffers_; }
  /// Frozen parameters, of any dtype; offsets from the start of a frozen area.
  const std::vector<PlacedBuffer>& frozen() const { return frozen_; }
  const LayoutOptions& options() const { return options_; }
  /// Of the region that is taken over: not a matter of the model, so the fingerprint does not know it.
  void set_state_buffers(int buffers) { options_.state_buffers = buffers; }
  /// The same with another share of the optimizer's state.
  Layout with_share(int share, int shares, bool copied) const;
  /// Elements of the flat range, padding included; a multiple of 16.
  std::size_t elements() const { return elements_; }

  /// The flat range, cut where the kind of the parameters changes: at least one part. Those with copies come first,
  /// then those with bfloat16 gradients, then by group. None is empty but that of an empty range.
  const std::vector<Part>& parts() const { return parts_; }
  const Part& part_of(std::size_t parameter) const;
  /// That of an element of the flat range.
  const Part& part_at(std::size_t element) const;

  /// The slice that local rank `rank` of `ranks` updates; the slices cover the range.
  Slice slice(int rank, int ranks) const;

  /// The elements whose optimizer state is in a share, on block edges; the shares cover the range.
  Slice share(int number) const { return slice(number, options_.shares); }
  /// This node's.
  Slice share() const { return share(options_.share); }
  /// The number of the one that this node has a copy of (LayoutOptions::copied).
  int copied_share() const { return (options_.share + options_.shares - 1) % options_.shares; }
  /// What of a share local rank `rank` of `ranks` updates, on block edges; where there is one share, its slice.
  Slice slice_of_share(int number, int rank, int ranks) const;

  // Byte offsets from the start of the state region.
  std::size_t weights(int buffer) const { return std::size_t(buffer) * buffer_bytes_; }
  /// Where element 0 would be: only those of share() are there.
  std::size_t optimizer_array(int buffer, int array) const {
    return optimizer_area(buffer) + std::size_t(array) * state_bytes_ - share().begin * sizeof(float);
  }
  /// The same of the copy, of which those of share(copied_share()) are there.
  std::size_t copied_array(int buffer, int array) const {
    return optimizer_area(buffer) + std::size_t(options_.optimizer_arrays + array) * state_bytes_ -
           share(copied_share()).begin * sizeof(float);
  }
  /// Where this node's share of the optimizer's arrays begins, one behind the other, and the copy behind it.
  std::size_t optimizer_area(int buffer) const { return weights(buffer) + array_bytes_; }
  std::size_t optimizer_bytes() const {
    return std::size_t(options_.optimizer_arrays) * state_bytes_ * (options_.copied ? 2 : 1);
  }
  /// Of the weights (LayoutOptions::average).
  std::size_t average(int buffer) const { return optimizer_area(buffer) + optimizer_bytes(); }
  /// The bfloat16 copies, see Part::copies.
  std::size_t bf16_copies(int buffer) const { return average(buffer) + (options_.average ? array_bytes_ : 0); }
  /// The copy of one parameter that has one.
  std::size_t bf16_copy(int buffer, std::size_t parameter) const;
  std::size_t module_buffers(int buffer) const { return bf16_copies(buffer) + copy_bytes_; }
  std::size_t average_buffers(int buffer) const { return module_buffers(buffer) + module_buffer_bytes_; }
  std::size_t step_record(int buffer) const {
    return average_buffers(buffer) + (options_.average ? module_buffer_bytes_ : 0);
  }
  /// Of each parameter, a std::uint64_t: in how many steps it was updated.
  std::size_t step_counts(int buffer) const;
  /// Those of options().bytes[index].
  std::size_t named_bytes(int buffer, std::size_t index) const;
  /// The number of the frozen area that belongs to a state buffer, a std::uint64_t.
  std::size_t frozen_number(int buffer) const { return weights(buffer) + content_bytes_; }
  std::size_t frozen_area(int number) const {
    return weights(options_.state_buffers) + std::size_t(number) * frozen_bytes_;
  }
  std::size_t gradients(int slot) const;
  /// The gradient of one parameter in a slot, of the parameter's gradient_type().
  std::size_t gradient(int slot, std::size_t parameter) const;
  c10::ScalarType gradient_type(std::size_t parameter) const { return parameters_[parameter].spec.gradients; }
  /// Whether other nodes compute some of the job's shards.
  bool is_spread() const { return options_.slots < options_.shards; }
  /// The sums of the gradients of all shards, float32, where the layout is spread.
  std::size_t gradient_sums() const { return gradients(options_.slots); }
  /// What a shard of the job did with each parameter, a ParameterUse; behind it:
  std::size_t uses(int shard) const { return shard_record(shard) - use_bytes(); }
  std::size_t shard_record(int shard) const;
  /// Bytes of a shard's uses.
  std::size_t use_bytes() const;
  std::size_t module_buffer_bytes() const { return module_buffer_bytes_; }
  /// Bytes of one state buffer.
  std::size_t buffer_bytes() const { return buffer_bytes_; }
  /// Those that are the state: all but the frozen area's number.
  std::size_t content_bytes() const { return content_bytes_; }
  /// Of these, as ranges of bytes, what is the same on all nodes: all, or what is in no share.
  std::vector<Slice> common(int buffer) const;
  /// What is there beside the optimizer's arrays: two ranges of bytes, as long whatever the shares.
  std::vector<Slice> beside_optimizer(int buffer) const;
  /// One double per block of the flat range, for the gradient norm. In front of the slots, whose number may grow at a
  /// restart into memory that must hold nothing but zeros.
  std::size_t block_sums() const;
  std::size_t blocks() const { return (elements_ + kBlock - 1) / kBlock; }
  /// Two doubles for each block that the parameter, which has elements, lies in (parameter_norms).
  std::size_t parameter_sums(std::size_t parameter) const;
  /// The blocks that a parameter lies in, as a range.
  Slice blocks_of(std::size_t parameter) const;
  /// Those of a share.
  Slice blocks_of_share(int number) const;
  std::size_t frozen_bytes() const { return frozen_bytes_; }
  std::size_t total_bytes() const;
  /// Of the largest layout that has this one's fingerprint and state buffers, whichever of the shards are its node's.
  std::size_t most_bytes() const;

  /// Names, dtypes, shapes, strides, groups, shards, the optimizer, its arrays and named bytes in one number: equal
  /// where one state can be taken over by the other's job, whatever the number of ranks, slots or buffers. Of shares it
  /// says nothing.
  std::uint64_t fingerprint() const;

 private:
  static constexpr std::size_t kRecordBytes = 64;
  std::size_t guests() const { return gradient_sums() + array_bytes_; }
  void place(std::vector<TensorSpec> specs);
  void measure_buffers();

  std::vector<PlacedParameter> parameters_;
  std::vector<PlacedBuffer> buffers_;
  std::vector<PlacedBuffer> frozen_;
  LayoutOptions options_;
  std::size_t elements_ = 0;
  std::vector<Part> parts_;
  std::vector<std::size_t> first_sum_;  ///< by parameter, and one more: pairs of sums in front of its own
  std::size_t array_bytes_ = 0;
  std::size_t state_bytes_ = 0;  ///< of an array of the optimizer's: those of the largest share
  std::size_t copy_bytes_ = 0;
  std::size_t module_buffer_bytes_ = 0;
  std::size_t content_bytes_ = 0;
  std::size_t buffer_bytes_ = 0;
  std::size_t slot_bytes_ = 0;
  std::size_t frozen_bytes_ = 0;
};

/// The fingerprint of one tensor; Layout::fingerprint() is made of these.
std::uint64_t fingerprint(const TensorSpec& spec);

}  // namespace lockstep::state
