#include "lockstep/comm/network/c10d_group.h"

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/network/c10d_streams.h"
#include "lockstep/comm/network/network_group.h"
#include "lockstep/comm/network/store_meeting.h"
#include "lockstep/comm/network/tcp_mesh.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/comm/world.h"

namespace lockstep::comm {
namespace {

constexpr const char* kMeetingKeys = "lockstep/over_backend/";
constexpr const char* kHostKey = "host";
// Of rank 0's address, which is looked up for its host alone: the port is in the store.
constexpr int kNoPort = 1;

// What rank 0 says of itself: where it is, and a key of this group's own.
struct RankZero {
  std::string host, key;
};

RankZero rank_zero_of(int rank, c10d::Store& store, const std::shared_ptr<Meeting>& meeting,
                      std::chrono::milliseconds timeout) {
  if (rank == 0) {
    RankZero zero{.host = own_address_beside(store), .key = hex_of(new_token())};
    meeting->publish(kHostKey, zero.key + " " + zero.host);
    return zero;
  }
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    if (const std::optional<std::string> told = meeting->look_up(kHostKey)) {
      const std::size_t space = told->find(' ');
      if (space == std::string::npos) throw Error("over_backend: another program uses the store's keys of this group");
      return {.host = told->substr(space + 1), .key = told->substr(0, space)};
    }
    if (std::chrono::steady_clock::now() >= deadline)
      throw Error("over_backend: rank 0 did not come to the store within " + std::to_string(timeout.count()) + " ms");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

std::shared_ptr<Group> over_backend(c10::intrusive_ptr<c10d::Backend> backend, c10d::Store& store,
                                    const OverBackendOptions& options) {
  if (backend->getBackendName() == "mpi")
    throw UsageError("over_backend: libtorch's MPI takes no call while one waits: use init({.backend = \"mpi\"})");
  const bool check_calls = checks_calls(options.check_calls, ::getenv);  // before anybody waits for this rank
  const int rank = backend->getRank(), size = backend->getSize();
  auto node = std::make_shared<SingleGroup>();
  if (size == 1) return node;
  base::Member& member = node->node().member;
  member.set_compares_calls(check_calls);
  member.set_stall_warning(options.stall_warning);
  const auto meeting = std::make_shared<StoreMeeting>(store, kMeetingKeys);
  const RankZero zero = rank_zero_of(rank, store, meeting, options.timeout);
  const MeshPlace place{.rank = rank,
                        .world = size,
                        .host = zero.host,
                        .port = kNoPort,
                        .interface = interface_asked_for(),
                        .key = zero.key,
                        .meeting = meeting,
                        .timeout = options.timeout,
                        .stall_warning = options.stall_warning,
                        .check_calls = check_calls,
                        .check = [node] { node->node().member.check_abort(); }};
  return join_network(place, node, [&](Mesh& mesh) { return c10d_streams(std::move(backend), mesh); });
}

}  // namespace lockstep::comm
