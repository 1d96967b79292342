#pragma once

// The arithmetic of all_reduce, apart from all waiting.

#include <c10/core/ScalarType.h>

#include <cstddef>

namespace lockstep::comm {

/// out[i] = scale * (tree sum over r of inputs[r][i]), i in [0, elements).
/// `out` may be one of the inputs. dtype as in Group::all_reduce; `scale` is ignored for int64.
void tree_reduce(c10::ScalarType dtype, const std::byte* const* inputs, int count, std::byte* out, std::size_t elements,
                 double scale);

}  // namespace lockstep::comm
