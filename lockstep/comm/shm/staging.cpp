#include "lockstep/comm/shm/staging.h"

namespace lockstep::comm {

Staging::Staging(base::Node& node) {
  const std::size_t bytes = std::size_t(node.member.size()) * kArea;
  // A later generation finds it made: what is left in it has the marks of its generation.
  if (node.member.rank() == 0 && node.segment.extent(base::Area::staging).bytes < bytes) {
    try {
      node.segment.grow(base::Area::staging, bytes);
    } catch (const Error& error) {
      node.member.fail(error.what(), exit_code(error));
      throw;
    }
  }
  node.member.barrier();
  mapping_ = node.segment.map(node.segment.extent(base::Area::staging).offset, bytes, base::Access::read_write);
}

}  // namespace lockstep::comm
