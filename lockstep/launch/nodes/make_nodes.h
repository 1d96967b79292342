#pragma once

#include <memory>

#include "lockstep/base/outlet.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/nodes.h"
#include "lockstep/launch/plan.h"
#include "lockstep/launch/workers/reaper.h"

namespace lockstep::launch {

/// What the plan asks for: one node, or a part in a meeting of several (NodeMember, and what it throws). All must
/// outlive it.
std::unique_ptr<Nodes> make_nodes(const Plan& plan, EventLoop& loop, base::Outlet& console, Reaper& reaper);

}  // namespace lockstep::launch
