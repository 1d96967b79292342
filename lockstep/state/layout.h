#pragma once

// The plan of the state region: where each parameter, optimizer array, module buffer and
// gradient slot lies. Pure data, a function of its inputs alone, equal on all ranks.
//
// One state buffer (there are one or more, so that a step writes another than it reads):
//   [weights][optimizer array 0][optimizer array 1][bfloat16 copies][module buffers][step record][frozen area's number]
// and after the state buffers one gradient slot per logical shard, with its shard record, the block sums of the
// gradient norm, and the frozen areas: parameters that no step writes. There are as many as state buffers, but
// a step leaves them alone: each state buffer says which one belongs to it.
// Weights, optimizer arrays and slots share one flat range: element i of each belongs to the
// same weight. Parameters begin on 64-byte edges; the padding between them stays zero.
// Parameters that forward reads in bfloat16 come first in the flat range: their weights have a
// copy, their gradients come in bfloat16 and are kept so, those of the others in float32.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::state {

/// What is known of a tensor before it has a place.
struct TensorSpec {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  ///< in elements, dense
  bool bf16 = false;                  ///< a float32 parameter of which forward reads a bfloat16 copy
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

/// What a committed step left behind, apart from the state itself.
struct StepRecord {
  std::uint64_t step = 0;
  double loss = 0;           ///< tree mean of the shard means, before the update
  double gradient_norm = 0;  ///< 2-norm of the mean gradients before clipping; 0: the step asked for none
  std::int64_t samples = 0;  ///< of the whole global batch
};

/// What a shard contributes to the record.
struct ShardRecord {
  double loss = 0;
  std::int64_t samples = 0;
};

struct LayoutOptions {
  int shards = 1;  ///< logical shards S: gradient slots
  int optimizer_arrays = 0;
  int state_buffers = 2;  ///< 1: updated in place, where the state dies with the process that updates it
};

/// Elements [begin, end) of the flat range.
struct Slice {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const Slice&) const = default;
};

/// A part of the flat range whose gradients are of one type.
struct Part {
  Slice range;
  c10::ScalarType gradients = c10::ScalarType::Float;
  std::size_t offset = 0;  ///< bytes from the start of a slot to the gradient of the part's first element
};

class Layout {
 public:
  /// Elements of a block: 64 KiB. Slices end on block edges.
  static constexpr std::size_t kBlock = std::size_t(16) << 10;

  Layout(std::vector<TensorSpec> parameters, std::vector<TensorSpec> buffers, LayoutOptions options,
         std::vector<TensorSpec> frozen = {});

  const std::vector<PlacedParameter>& parameters() const { return parameters_; }
  const std::vector<PlacedBuffer>& buffers() const { return buffers_; }
  /// Frozen parameters, of any dtype; offsets from the start of a frozen area.
  const std::vector<PlacedBuffer>& frozen() const { return frozen_; }
  const LayoutOptions& options() const { return options_; }
  /// Of the region that is taken over: not a matter of the model, so the fingerprint does not know it.
  void set_state_buffers(int buffers) { options_.state_buffers = buffers; }
  /// Elements of the flat range, padding included; a multiple of 16.
  std::size_t elements() const { return elements_; }

  /// The flat range, cut where the type of the gradients changes, on a block edge: one part or two.
  const std::vector<Part>& parts() const { return parts_; }

  /// The slice that local rank `rank` of `ranks` updates; the slices cover the range.
  Slice slice(int rank, int ranks) const;

  // Byte offsets from the start of the state region.
  std::size_t weights(int buffer) const { return std::size_t(buffer) * buffer_bytes_; }
  std::size_t optimizer_array(int buffer, int array) const {
    return weights(buffer) + std::size_t(1 + array) * array_bytes_;
  }
  /// The bfloat16 copies of the first part's weights.
  std::size_t bf16_copies(int buffer) const { return optimizer_array(buffer, options_.optimizer_arrays); }
  std::size_t module_buffers(int buffer) const { return bf16_copies(buffer) + copy_bytes_; }
  std::size_t step_record(int buffer) const { return module_buffers(buffer) + module_buffer_bytes_; }
  /// The number of the frozen area that belongs to a state buffer, a std::uint64_t.
  std::size_t frozen_number(int buffer) const { return weights(buffer) + content_bytes_; }
  std::size_t gradients(int shard) const {
    return std::size_t(options_.state_buffers) * buffer_bytes_ + std::size_t(shard) * slot_bytes_;
  }
  /// The gradient of one parameter in a shard's slot, of the parameter's gradient_type().
  std::size_t gradient(int shard, std::size_t parameter) const;
  c10::ScalarType gradient_type(std::size_t parameter) const;
  std::size_t shard_record(int shard) const { return gradients(shard) + slot_bytes_ - kRecordBytes; }
  std::size_t module_buffer_bytes() const { return module_buffer_bytes_; }
  /// Bytes of one state buffer.
  std::size_t buffer_bytes() const { return buffer_bytes_; }
  /// Those that are the state: up to the step record, which is included.
  std::size_t content_bytes() const { return content_bytes_; }
  /// One double per block of the flat range, for the gradient norm.
  std::size_t block_sums() const { return gradients(options_.shards); }
  std::size_t blocks() const { return (elements_ + kBlock - 1) / kBlock; }
  std::size_t frozen_area(int number) const;
  std::size_t frozen_bytes() const { return frozen_bytes_; }
  std::size_t total_bytes() const { return frozen_area(options_.state_buffers); }

  /// Names, dtypes, shapes, strides, shards and optimizer arrays in one number: equal where one state can be taken
  /// over by the other's job, whatever the number of ranks or buffers.
  std::uint64_t fingerprint() const;

 private:
  static constexpr std::size_t kRecordBytes = 64;
  void place(std::vector<TensorSpec> specs);

  std::vector<PlacedParameter> parameters_;
  std::vector<PlacedBuffer> buffers_;
  std::vector<PlacedBuffer> frozen_;
  LayoutOptions options_;
  std::size_t elements_ = 0;
  std::vector<Part> parts_;
  std::size_t bf16_elements_ = 0;  ///< of the first part, when its gradients are bfloat16
  std::size_t array_bytes_ = 0;
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
