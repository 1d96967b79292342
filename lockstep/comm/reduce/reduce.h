#pragma once

// The arithmetic of the reductions, apart from all waiting. Torch-free.

#include <cstddef>
#include <vector>

namespace lockstep::comm {

enum class Element { float32, float64, bfloat16, float16, int8, uint8, int32, int64 };
enum class Combine { sum, product, min, max };

/// Elements [begin, end) of `inputs` are combined along the fixed tree (base/tree.h) and written to
/// the same places of all `outputs`.
struct Reduction {
  Element element{};
  Combine combine{};
  /// The sum is multiplied by it, before the one rounding of 16-bit numbers; ignored for integers
  /// and for other ways to combine.
  double scale = 1;
};

struct Buffers {
  const std::byte* const* inputs = nullptr;
  int count = 0;                        ///< of inputs, 1 to base::kMaxLocalRanks
  std::byte* const* outputs = nullptr;  ///< may be inputs
  int copies = 1;                       ///< of the result: outputs
};

/// float16 and bfloat16 are combined in float32 and rounded once. Integers wrap. min and max of anything with a
/// NaN are NaN. The same bits by whatever instruction set (LOCKSTEP_ISA=avx512|avx2|scalar chooses), but for what
/// a NaN carries.
void tree_reduce(const Reduction& reduction, const Buffers& buffers, std::size_t begin, std::size_t end);

/// Numbers of 16 bits, Element::bfloat16 or Element::float16, as float32: no bit is lost.
void widen(Element element, const std::byte* from, std::size_t elements, float* to);
/// The other way, rounded as tree_reduce() rounds.
void narrow(Element element, const float* from, std::size_t elements, std::byte* to);

/// The instruction sets of this machine for LOCKSTEP_ISA, best first, and the same by one of them.
std::vector<const char*> reduce_builds();
void tree_reduce_by(const char* build, const Reduction& reduction, const Buffers& buffers, std::size_t begin,
                    std::size_t end);
void widen_by(const char* build, Element element, const std::byte* from, std::size_t elements, float* to);
void narrow_by(const char* build, Element element, const float* from, std::size_t elements, std::byte* to);

}  // namespace lockstep::comm
