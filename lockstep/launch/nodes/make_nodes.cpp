#include "lockstep/launch/nodes/make_nodes.h"

#include "lockstep/launch/nodes/node_member.h"

namespace lockstep::launch {

std::unique_ptr<Nodes> make_nodes(const Plan& plan, EventLoop& loop, base::Outlet& console, Reaper& reaper) {
  if (!plan.nodes) return std::make_unique<OneNode>(plan, loop, console);
  return std::make_unique<NodeMember>(plan, loop, console, reaper);
}

}  // namespace lockstep::launch
