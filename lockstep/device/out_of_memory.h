#pragma once

// A GPU's memory is used up: libtorch's paragraph about it as one line. Pure, thread-safe.

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::device {

/// `text` is what_without_backtrace() of the c10::OutOfMemoryError that libtorch's allocators throw.
/// "rank 3: out of memory on cuda:1: asked for 20.00 GiB, free are 5.06 GiB of 79.11 GiB; libtorch has handed out 70.10
/// GiB and keeps 1.20 GiB more, in blocks too small for it: ...". Of what the text does not tell nothing is said; of a
/// text without the sizes the first line is kept. Without a rank it begins with "out of memory".
std::string out_of_memory_line(std::string_view text, std::optional<int> rank = {});

}  // namespace lockstep::device
