#include "lockstep/comm/world.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "lockstep/base/core_binding.h"
#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/stack_on_request.h"
#include "lockstep/comm/ipc/ipc_group.h"
#include "lockstep/comm/last_words.h"
#include "lockstep/comm/nccl/nccl_group.h"
#include "lockstep/comm/network/gloo_streams.h"
#include "lockstep/comm/network/hierarchical_group.h"
#include "lockstep/comm/network/meeting.h"
#include "lockstep/comm/network/mpi_session.h"
#include "lockstep/comm/network/mpi_streams.h"
#include "lockstep/comm/network/network_group.h"
#include "lockstep/comm/network/roll_call.h"
#include "lockstep/comm/network/tcp_mesh.h"
#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/comm/traced_group.h"
#include "lockstep/memory/caching_allocator.h"
#include "lockstep/rendezvous/init_method.h"
#include "lockstep/rendezvous/run_id.h"
#include "lockstep/rendezvous/segment_exchange.h"

namespace lockstep::comm {
namespace {

rendezvous::Place place_in(const Topology& topology) {
  const auto within = [](int rank, int ranks) { return 0 <= rank && rank < ranks; };
  if (!within(topology.rank, topology.world) || !within(topology.local_rank, topology.local_world))
    throw UsageError("init: the group says that this is rank " + std::to_string(topology.rank) + " of " +
                     std::to_string(topology.world) + ", on its node " + std::to_string(topology.local_rank) + " of " +
                     std::to_string(topology.local_world) + "; ranks count from 0");
  return {.rank = topology.rank,
          .world_size = topology.world,
          .local_rank = topology.local_rank,
          .local_world_size = topology.local_world};
}

std::shared_ptr<NodeGroup> join_node(const rendezvous::Place& place, std::chrono::milliseconds timeout) {
  if (place.local_world_size == 1 && place.segment_path.empty()) return std::make_shared<SingleGroup>();
  return std::make_shared<ShmGroup>(rendezvous::share_segment(place, timeout), place.local_rank, timeout);
}

rendezvous::Place find_place(const InitOptions& options) {
  const rendezvous::InitMethod method{.url = options.init_method,
                                      .rank = options.rank,
                                      .world_size = options.world_size,
                                      .backend = rendezvous::parse_backend(options.backend)};
  if (options.group && method != rendezvous::InitMethod())
    throw UsageError(
        "init: a group is given, which has its ranks; no init_method, rank, world_size or backend beside it");
  if (options.group) return place_in(options.group->topology());
  rendezvous::Place place = rendezvous::place_by(method);
  return place.nodes_known ? place : call_roll(place, method.backend, options.timeout);
}

std::shared_ptr<Group> join_hosts(const rendezvous::Place& place, const InitOptions& options) {
  const std::shared_ptr<NodeGroup> node = join_node(place, options.timeout);
  node->node().member.set_compares_calls(options.check_calls);
  const bool one_node = place.local_world_size == place.world_size;
  const rendezvous::Backend backend = rendezvous::parse_backend(options.backend);
  if (one_node && (!rendezvous::is_over_network(backend) || place.world_size == 1)) return node;
  const MeshPlace meeting{.rank = place.rank,
                          .world = place.world_size,
                          .local_rank = place.local_rank,
                          .local_world = place.local_world_size,
                          .host = place.master_addr,
                          .port = place.master_port,
                          .interface = place.socket_interface,
                          .key = place.meeting_key,
                          .meeting = meeting_of(place, options.timeout),
                          .timeout = options.timeout,
                          .stall_warning = options.stall_warning,
                          .check_calls = options.check_calls,
                          .check = [node] { node->node().member.check_abort(); }};
  const MakeGroup make = backend == rendezvous::Backend::tcp ? flat_group : hierarchical_group;
  if (backend == rendezvous::Backend::gloo) {
    const auto streams = [&](Mesh& mesh) { return gloo_streams(mesh, options.timeout, meeting.check); };
    return join_network(meeting, node, streams, make);
  }
  if (backend != rendezvous::Backend::mpi) return join_network(meeting, node, tcp_streams, make);
  MpiSession& session = MpiSession::load();
  const int number = session.begin_world();
  const auto streams = [&](Mesh& mesh) {
    for (MeshPeer& peer : mesh.peers) peer.data = {};
    session.start(place, options.timeout, meeting.check);
    return mpi_streams(session, mesh, session.world_tag(number));
  };
  return join_network(meeting, node, streams, make);
}

std::shared_ptr<Group> join(const rendezvous::Place& place, const InitOptions& options) {
  if (options.group) return options.group;
  const rendezvous::Backend backend = rendezvous::parse_backend(options.backend);
  if (backend == rendezvous::Backend::ipc) return ipc::over_device_memory(join_hosts(place, options));
  if (backend != rendezvous::Backend::nccl) return join_hosts(place, options);
  nccl::Library library = nccl::load();  // who has none keeps nobody waiting for long
  return std::make_shared<nccl::NcclGroup>(join_hosts(place, options), std::move(library));
}

// A launcher may have bound each rank to cores of its own: what all have together counts.
int cores_of_node(Group& group) {
  base::Node* const node = group.shared_node();
  if (node == nullptr) return base::usable_cores();
  std::vector<int> processes;
  for (int rank = 0; rank < group.topology().local_world; ++rank) {
    const int pid = node->member.page().ranks[rank].pid.load(std::memory_order_relaxed);
    processes.push_back(pid == getpid() ? 0 : pid);
  }
  return base::usable_cores(processes);
}

void say_idle_cores(Group& group) {
  const Topology& place = group.topology();
  if (place.local_rank != 0) return;
  const std::string hint = idle_cores_hint(place.local_world, at::get_num_threads(), cores_of_node(group));
  if (!hint.empty()) base::Outlet::console(STDERR_FILENO).offer(hint + "\n");
}

}  // namespace

std::string World::run_id() const { return rendezvous::run_id(place_); }

// The agent keeps a node's memory, whose generation counts what no restart counts.
int World::attempt() const {
  return place_.launcher == "lockstep" ? int(group_->node().member.generation()) - 1 : place_.restart_count;
}

bool checks_calls(bool asked, const rendezvous::GetEnv& get) {
  const char* const value = get("LOCKSTEP_CHECK_CALLS");
  const std::string_view text = value == nullptr ? "" : value;
  if (!text.empty() && text != "0" && text != "1")
    throw UsageError("LOCKSTEP_CHECK_CALLS is '" + std::string(text) + "': 0 or 1 expected");
  return asked && text != "0";
}

std::string idle_cores_hint(int ranks, int threads, int cores) {
  const std::string idle = base::idle_cores_text(ranks, threads, cores);
  if (idle.empty()) return "";
  const int more = cores / ranks;
  return "lockstep: hint: " + idle + "; more processes" +
         (more > threads ? " or init({.threads = " + std::to_string(more) + "})" : "") + " would use the rest";
}

World init(InitOptions options) {
  speak_before_terminating(nullptr, /*agent_reports=*/false);
  options.check_calls = checks_calls(options.check_calls, ::getenv);
  rendezvous::Place place = find_place(options);
  if (options.bind_to == BindTo::core)
    base::bind_to_own_cores(place.local_rank, place.local_world_size, std::max(options.threads, 1));
  if (options.threads > 0) at::set_num_threads(options.threads);
  const TraceSettings trace = trace_settings(options.trace_dir, [](const char* name) { return std::getenv(name); });
  // Before it takes its seat, where the others read whether they may ask it.
  if (options.stall_warning.count() > 0) base::write_stack_when_asked(place.rank);
  std::shared_ptr<Group> group = join(place, options);
  if (!options.group) group = traced(std::move(group), place, trace);
  if (base::Node* const node = group->shared_node()) node->member.set_stall_warning(options.stall_warning);
  memory::set_local_ranks(group->topology().local_world);
  speak_before_terminating(group, place.launcher == "lockstep");
  // Who is bound has the cores that it asked for, and its affinity tells of no others.
  if (options.idle_cores_hint && options.bind_to == BindTo::none) say_idle_cores(*group);
  return {std::move(place), group};
}

}  // namespace lockstep::comm
