#include "lockstep/parallel/state_editor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/or_abort.h"

namespace lockstep::parallel {

StateEditor::StateEditor(FusedState& fused, ShardSession& session, GradientHooks& hooks, comm::Group& group)
    : fused_(fused), session_(session), hooks_(hooks), group_(group), began_with_(fused.state.committed().step) {}

void StateEditor::modify(const std::function<void()>& fn) {
  fused_.state.check_settled("modify");
  refuse_in_mid_step();
  fused_.settle();
  base::Member& member = group_.node().member;
  or_abort(group_, [&] { fused_.check_bound(); });
  // What passes have left is no state, and rank 0's shard depends on the number of ranks.
  if (session_.begun()) session_.restart();
  member.barrier();
  if (group_.rank() == 0) or_abort(group_, [&] { edit(fn); });
  member.barrier();
  edited_ = true;
  if (fused_.nodes) or_abort(group_, [&] { fused_.nodes->states().spread_edit(); });
  fused_.flip();
  session_.restart();
}

// By agreement: with unused parameters some ranks may have gradients and others none.
void StateEditor::refuse_in_mid_step() const {
  const auto flags = group_.all_gather(at::full({1}, std::int64_t(session_.has_gradients()), at::kLong));
  for (std::size_t rank = 0; rank < flags.size(); ++rank)
    if (flags[rank].item<std::int64_t>() != 0)
      throw UsageError("data parallel: modify() in the middle of a step: rank " + std::to_string(rank) +
                       " has gradients; call it behind step(), or zero_grad() on all ranks first");
}

void StateEditor::go_back(std::uint64_t step) {
  fused_.settle();
  bool gone = false;
  or_abort(group_, [&] { gone = fused_.nodes ? fused_.nodes->states().go_back(step) : go_back_alone(step); });
  if (!gone) return;
  fused_.flip();
  session_.restart();
  fused_.kept.load(fused_.state);
}

// The same for one node. Where there never were others, the program itself has made other steps of one model.
bool StateEditor::go_back_alone(std::uint64_t step) {
  state::SharedState& state = fused_.state;
  const std::uint64_t now = state.committed().step;
  if (!state.taken_over() || !state.was_spread() || edited_) return false;
  if (step == 0 || now != began_with_ || now != step + 1) return false;
  const std::vector<int> buffers = state::other_buffers_of(state, step);
  if (buffers.size() != 1) return false;  // of two one is from before an edit
  base::Member& member = group_.node().member;
  member.barrier();  // all have looked
  if (member.rank() == 0) state.set_committed({.step = step, .buffer = std::uint32_t(buffers.front())});
  member.barrier();
  return true;
}

std::string StateEditor::hash() const { return fused_.state.buffer_hash(int(fused_.state.committed().buffer)); }

// On one rank, between two barriers: runs fn() on a copy of the committed state, with writable float32 parameters and
// without autograd. What fn() throws leaves the committed state (where there is one buffer, as fn() has left that).
void StateEditor::edit(const std::function<void()>& fn) {
  const at::NoGradGuard no_grad;
  const state::SharedState& state = fused_.state;
  const state::Layout& layout = state.layout();
  const base::Commit committed = state.committed();
  fused_.state.choose_target(committed.step);
  const int from = int(committed.buffer);
  const int to = state.target(committed.step);
  const int frozen_from = state.frozen_area(from);
  const int frozen_to = state::spare_frozen_area(state, to);
  if (to != from) {
    std::memcpy(state.write(layout.weights(to)), state.read(layout.weights(from)), layout.buffer_bytes());
    std::memcpy(state.write(layout.frozen_area(frozen_to)), state.read(layout.frozen_area(frozen_from)),
                layout.frozen_bytes());
  }
  fused_.parameters->show_masters(true);  // before they can be written: what shares the copies' storage stays read-only
  fused_.parameters->point_to(state.write(layout.weights(to)));
  fused_.frozen->point_to(state.write(layout.frozen_area(frozen_to)));
  try {
    fn();
    fused_.parameters->take_over();
    fused_.frozen->take_over();
    fused_.buffers.store(state.write(layout.module_buffers(to)));
  } catch (...) {
    end_edit();
    session_.restart();
    throw;
  }
  write_copies(state, to);
  fused_.kept.store(state, to);
  state.set_frozen_area(to, frozen_to);
  fused_.state.recommit();
  end_edit();
}

// Back to memory that nobody can write to, before whatever fn() kept of the parameters loses its binding.
void StateEditor::end_edit() {
  fused_.parameters->restore();
  fused_.frozen->restore();
  fused_.flip();
  fused_.parameters->show_masters(false);
  hooks_.renew();
}

}  // namespace lockstep::parallel
