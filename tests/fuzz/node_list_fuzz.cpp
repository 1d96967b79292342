// Any bytes are a list of different host names, no more than there may be, or a UsageError; names written out one by
// one are themselves.

#include <cstdint>
#include <cstdlib>

#include "lockstep/base/text.h"
#include "lockstep/rendezvous/node_list.h"
#include "tests/fuzz/accepted.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::rendezvous;
  const std::string text(reinterpret_cast<const char*>(data), size);
  lockstep::testing::accepted([&] {
    const std::vector<std::string> names = expand_node_list("LIST", text);
    if (names.empty() || names.size() > kMaxNodes) std::abort();
    if (expand_node_list("LIST", lockstep::base::join(names, ",")) != names) std::abort();
  });
  return 0;
}
