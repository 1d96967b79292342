#pragma once

// Files that lie in memory are read as fast as cores copy and hash.

#include <cstddef>
#include <functional>

namespace lockstep::checkpoint {

/// Calls work(0) to work(count - 1), each once, on this thread and on as many as cores are free for it beside; those of
/// low numbers begin first. Returns when all have ended. What one throws is thrown here, the first of them; those that
/// have not begun by then are left out.
void in_threads(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace lockstep::checkpoint
