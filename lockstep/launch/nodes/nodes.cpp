#include "lockstep/launch/nodes/nodes.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/agent/port.h"

namespace lockstep::launch {
namespace {

// A port that the user named is not ours to change: better no start than ranks that wait for a stranger.
void require_free(int port) {
  if (port != 0 && port_is_taken(port))
    throw UsageError("--master-port " + std::to_string(port) +
                     " is in use by another program: name another, or none to get a free one");
}

}  // namespace

OneNode::OneNode(const Plan& plan, EventLoop& loop, base::Outlet& console)
    : plan_(plan),
      loop_(loop),
      console_(console),
      store_([this](std::uint64_t, const rendezvous::StoreAnswer& answer) { desk_->answer(answer); }) {}

Meeting OneNode::meet(const std::function<int()>& stop_signal) {
  if (const int signal = stop_signal(); signal != 0) return {.over = 128 + signal};
  require_free(plan_.master_port);
  store_.begin(0);
  desk_ = std::make_unique<StoreDesk>(
      loop_, StoreDesk::Events{.ask = [this](const rendezvous::StoreAsk& ask) { store_.take(0, ask); },
                               .forget = [this](const rendezvous::StoreForget& forget) { store_.take(0, forget); }});
  return {.place = plan_.node,
          .master_addr = plan_.master_addr,
          .master_port = plan_.master_port != 0 ? plan_.master_port : free_port(),
          .restart_count = history_.restarts,
          .run_id = "",
          .store = desk_->name(),
          .over = {}};
}

Decision OneNode::agree(AttemptResult& result, const AttemptFacts& facts, const std::function<int()>&) {
  desk_.reset();
  if (const auto& first = result.record.first) console_.say(report_followers(*first, result.record.ends));
  return decide_and_count(facts, history_, plan_.max_restarts, plan_.no_restart_codes);
}

}  // namespace lockstep::launch
