#include "lockstep/comm/shm/staging.h"

namespace lockstep::comm {

Staging::Staging(base::Node& node) {
  // Always the first region after the control page, so its place needs no announcement. A
  // later generation finds it made.
  constexpr std::size_t edge = std::size_t(2) << 20;
  constexpr std::size_t offset = (base::kControlBytes + edge - 1) / edge * edge;
  const std::size_t bytes = std::size_t(node.member.size()) * kArea;
  if (node.member.rank() == 0 && node.segment.control().bytes.load() <= base::kControlBytes) {
    try {
      node.segment.grow(bytes);
    } catch (const Error& error) {
      node.member.fail(error.what(), exit_code(error));
      throw;
    }
  }
  node.member.barrier();
  mapping_ = node.segment.map(offset, bytes, base::Access::read_write);
}

}  // namespace lockstep::comm
