#pragma once

// Reduce and update in one pass: for every weight of a range, the gradients of all slots
// are summed along the fixed tree, multiplied by one number (1 / shards), and the rule is applied; the new
// weight and optimizer state go to the target, and with them, if wanted, the new weight
// rounded to bfloat16. Elementwise in float32; the operations are the same on every instruction
// set (no compiler contraction, explicit fused multiply-add), so the bits are.
//
// Pure arithmetic over memory that the caller owns: no allocation, no waiting, any number of
// threads on disjoint ranges.

#include <cstddef>
#include <cstdint>

#include "lockstep/optim/rule.h"

namespace lockstep::optim {

inline constexpr int kMaxStateArrays = 4;

/// What the gradients are stored as.
enum class GradientType { float32, bfloat16 };

/// What a step does to the running average of the weights: leaves it, sets it to the new weights, or
/// average = decay * average + (1 - decay) * weights.
enum class Averaging { keep, copy, mean };

/// The flat arrays a step reads and writes. All pointers are to element 0 and 64-byte
/// aligned. `to` may equal `from` (in place) but not overlap it otherwise.
struct Arrays {
  const void* const* gradients = nullptr;  ///< one per slot
  GradientType gradient_type = GradientType::float32;
  int slots = 1;
  float mean = 1;  ///< multiplies the sum over the slots: 1 / (shards of the whole job)
  const float* from_weights = nullptr;
  const float* from_state[kMaxStateArrays] = {};  ///< SGD: momentum; Adam: m, v
  float* to_weights = nullptr;
  float* to_state[kMaxStateArrays] = {};
  std::uint16_t* to_bf16 = nullptr;  ///< the new weights in bfloat16, rounded to nearest even; null: not wanted
  const float* from_average = nullptr;
  float* to_average = nullptr;  ///< null: there is none
  Averaging averaging = Averaging::keep;
  double decay = 0;
  float gradient_scale = 1;  ///< multiplies that mean, also where it is 1: the clipping coefficient
  float max_value = 0;       ///< then cuts it to [-max_value, max_value]; 0: does not
};

/// How results are written: into the caches, which first read the lines that they do not hold, or past them.
/// The bits are the same. Which is faster depends on the machine: store_choice.h finds out.
enum class Stores { plain, streaming };
const char* to_string(Stores stores);

/// Applies the rule to elements [begin, end); both multiples of 16.
void update(const Rule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, Stores stores = Stores::plain);

/// Reads what forward reads of elements [begin, end) after an update: the copies in bfloat16 where there are any, else
/// the new weights. For its time.
void read_back(const Arrays& arrays, std::size_t begin, std::size_t end);

/// Sums over the weights of a parameter: of their squares, and of those of what its rule measures (rule.h).
struct SquareSums {
  double weights = 0;
  double measured = 0;
};

/// Of [begin, end), both multiples of 16 in one block: in float64 over 16 interleaved lanes, then the lanes in tree
/// order. Zeros for a rule that needs no norms.
SquareSums square_sums(const Rule& rule, const Arrays& arrays, std::size_t begin, std::size_t end);

/// Whether the step may be taken in two halves: the rule needs no more than weights and what it measures once it has
/// the norms, and there is a target of its own to keep that in.
bool has_halves(const Rule& rule, const Arrays& arrays);

/// The first: the same sums, and leaves the new state in the target and, for finish_update(), what was measured in the
/// place of the new weights. So the second reads neither gradients nor state. Only where has_halves().
SquareSums begin_update(const Rule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, Stores stores);

/// The second, with_norms(): what is then in the target has the bits of update(). The weights are stored plainly, for
/// their lines have just been read.
void finish_update(const Rule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, Stores stores);

/// The rule with the norms over a parameter, whose sums are those of its `blocks` blocks; added up in tree order.
Rule with_norms(const Rule& rule, const SquareSums* sums, std::size_t blocks);

/// Elements of a block, over which power_sums() adds up: 64 KiB.
inline constexpr std::size_t kBlock = std::size_t(16) << 10;

/// sums[b] = sum of |g|^p over the mean gradients g (tree sum times arrays.mean, in float32) of block
/// b, for the blocks of [begin, end); `begin` on a block edge, `sums` indexed from block 0. Added
/// up in float64 over 16 interleaved lanes, then the lanes in tree order: the same bits everywhere.
/// p = infinity: the largest |g|, not a number when one is not.
void power_sums(const Arrays& arrays, std::size_t begin, std::size_t end, double p, double* sums);

/// The p-norm over all blocks, in tree order.
double norm_of(const double* sums, std::size_t blocks, double p);

/// The first element of [begin, end) whose mean gradient is not finite; `end` when all are.
std::size_t first_nonfinite(const Arrays& arrays, std::size_t begin, std::size_t end);

/// By what clipping to `max_norm` multiplies gradients of norm `norm`: as PyTorch's clip_grad_norm_, at most 1; not a
/// number when `norm` is not one.
float clip_coefficient(double max_norm, double norm);

/// The instruction set that update() uses here: "avx512", "avx2" or "scalar". The environment
/// variable LOCKSTEP_ISA may name a lower one (for tests; the bits are the same).
const char* instruction_set();

}  // namespace lockstep::optim
