#include "lockstep/parallel/between_nodes.h"

#include <utility>
#include <vector>

namespace lockstep::parallel {

BetweenNodes::BetweenNodes(state::SharedState& state, comm::Group& group, const DataParallelOptions& options)
    : state_(state),
      group_(group),
      wire_(*group.wire()),
      sums_{options.reduction, options.compression},
      states_(state, group),
      exchange_(state, group.topology(), ranks(), waves_of(state.layout(), options.overlap_bytes), sums_),
      shares_(state.layout().options().shares > 1 ? std::make_unique<ShareExchange>(state, group, ranks()) : nullptr) {}

void BetweenNodes::exchange(std::uint64_t step) {
  for (int number = 0; number < exchange_.exchanges(); ++number) exchange_.carry(step, number, wire_);
}

void BetweenNodes::share_rank_zeros(std::uint64_t step, int to) {
  const state::Layout& layout = state_.layout();
  const std::pair<std::size_t, std::size_t> places[] = {{layout.module_buffers(to), layout.module_buffer_bytes()},
                                                        {layout.named_bytes(to, 0), kept_bytes(layout)}};
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  for (const auto& [offset, bytes] : places) {
    if (bytes == 0) continue;
    if (group_.rank() != 0) in.push_back({0, {state_.write(offset), bytes}});
    for (int node = 1; node < ranks().nodes() && group_.rank() == 0; ++node)
      out.push_back({ranks().first(node), {state_.read(offset), bytes}});
  }
  if (!out.empty() || !in.empty()) wire_.exchange(note_of_step(step), out, in);
}

}  // namespace lockstep::parallel
