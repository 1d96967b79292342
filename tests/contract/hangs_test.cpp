// Nobody ever hangs: what becomes of the others when one rank does not do its part, in every kind of call.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/comm/point_to_point.h"
#include "tests/contract/group_contract.h"
#include "tests/support/tally.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr std::int64_t kLarge = 700'001;  // several chunks, and more than a connection takes in

struct Called {
  const char* name;
  void (*call)(Group& group);
};

void all_reduce(Group& group, std::int64_t n) { group.all_reduce(torch::ones({n})); }

const Called kCalls[] = {
    {"AllReduceSmall", [](Group& group) { all_reduce(group, 3); }},
    {"AllReduceLarge", [](Group& group) { all_reduce(group, kLarge); }},
    {"AllReduceShared", [](Group& group) { group.all_reduce(group.shared_empty({kLarge})); }},
    {"ReduceScatter",
     [](Group& group) { group.reduce_scatter(torch::ones({kLarge}), torch::ones({kLarge * group.size()})); }},
    {"Broadcast", [](Group& group) { group.broadcast(torch::ones({kLarge})); }},
    {"BroadcastOfThatRank", [](Group& group) { group.broadcast(torch::ones({kLarge}), 1); }},
    {"AllGather", [](Group& group) { (void)group.all_gather(torch::ones({kLarge})); }},
    {"AllGatherIntoTensor",
     [](Group& group) { group.all_gather_into_tensor(torch::ones({kLarge * group.size()}), torch::ones({kLarge})); }},
    {"AllToAll",
     [](Group& group) {
       const at::Tensor input = torch::ones({kLarge * group.size()});
       group.all_to_all(torch::empty_like(input), input);
     }},
    {"Barrier", [](Group& group) { group.barrier(); }},
    {"NewGroup",
     [](Group& group) {
       (void)group.new_group({0, 1, 2});
     }},
    {"Split", [](Group& group) { (void)group.split(0, -group.rank()); }},
    {"RecvFromThatRank",
     [](Group& group) {
       const at::Tensor tensor = torch::ones({kLarge});
       if (group.rank() == 1)
         for (const int peer : {0, 2}) send(group, tensor, peer);
       else
         recv(group, tensor, 1);
     }},
};

// Of a failed test's name.
void PrintTo(const Called& called, std::ostream* out) { *out << called.name; }

enum class Fault { killed, reset, cut, stopped, late, other };

const char* name_of(Fault fault) {
  const char* names[] = {"Killed", "Reset", "Cut", "Stopped", "Late", "Other"};
  return names[int(fault)];
}

using Case = std::tuple<RankKind, Fault, Called>;

class Hangs : public ::testing::TestWithParam<Case> {};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const RankKind kind : {RankKind::threads, RankKind::processes, RankKind::nodes, RankKind::hierarchical})
    for (const Fault fault : {Fault::killed, Fault::reset, Fault::cut, Fault::stopped, Fault::late, Fault::other}) {
      // There are no connections, or rank 1 shares a page with rank 0, where it says that the third has hung up.
      if (kind != RankKind::nodes && (fault == Fault::reset || fault == Fault::cut)) continue;
      if (kind == RankKind::threads && (fault == Fault::killed || fault == Fault::stopped))
        continue;  // takes all ranks
      for (const Called& called : kCalls) all.emplace_back(kind, fault, called);
    }
  // What carries the payload changes how a way ends, and what is left to wait for then; the rest is the wire's.
  for (const Fault fault : {Fault::killed, Fault::late})
    for (const Called& called : kCalls)
      for (const char* name : {"AllReduceLarge", "Barrier", "NewGroup", "RecvFromThatRank"})
        if (std::string(called.name) == name) all.emplace_back(RankKind::gloo, fault, called);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Everywhere, Hangs, ::testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(support::to_string(std::get<0>(info.param))) + name_of(std::get<1>(info.param)) +
         std::get<2>(info.param).name;
});

// A call that no other is: its neighbours find another kind, dtype and size.
void call_something_else(Group& group) { group.all_reduce(torch::ones({5}, torch::kDouble)); }

// Of this process to other ranks.
std::vector<int> connections() {
  std::vector<int> open_now, found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    open_now.push_back(std::stoi(entry.path().filename().string()));
  for (const int fd : open_now) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 && peer.ss_family == AF_INET)
      found.push_back(fd);
  }
  return found;
}

// All connections of this process are reset, as by a firewall between the nodes: what was under way is lost, and both
// sides are told. They stay descriptors, of nothing, for those who own them.
void reset_connections() {
  const base::UniqueFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::vector<int> found = connections();
  for (const int fd : found) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    EXPECT_EQ(dup2(nothing.get(), fd), fd);
  }
  EXPECT_GE(found.size(), 4u) << "to two ranks, of two each";
}

// As if this machine's wire were cut: what comes is dropped before the kernel sees it, which confirms nothing then and
// answers no question, and nothing goes out until rank 0 kills it.
void cut_off() {
  sock_filter drop{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};
  const sock_fprog filter{.len = 1, .filter = &drop};
  const int off = 0;
  const std::vector<int> found = connections();
  bool all = found.size() >= 4;  // to two ranks, of two each
  for (const int fd : found)
    all = setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0 &&
          setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &off, sizeof off) == 0 && all;
  if (!all) _exit(9);  // which the test allows nobody
  raise(SIGSTOP);
}

// Whether the kernel of another rank has not confirmed what this one has sent it. A stopped rank's does.
bool is_something_unconfirmed() {
  for (const int fd : connections()) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_unacked > 0) return true;
  }
  return false;
}

// Rank 1's part of it; returns where it goes on.
void do_fault(Fault fault, Group& group, const Called& called, const testing::Tally& told) {
  if (fault == Fault::killed) raise(SIGKILL);
  if (fault == Fault::reset) reset_connections();
  if (fault == Fault::cut) cut_off();
  if (fault == Fault::stopped) raise(SIGSTOP);  // until rank 0 kills it
  if (fault == Fault::late) {
    (void)told.wait_for(2, 1500ms);
    std::this_thread::sleep_for(300ms);  // they are gone by then
    called.call(group);
  }
  if (fault == Fault::other) call_something_else(group);
}

TEST_P(Hangs, TheOthersThrowAndNameIt) {
  const auto& [kind, fault, called] = GetParam();
  // On a node a rank in a collective is nothing that who waits for its message could not be meant to wait for; in two
  // levels collectives begin on the node, and messages do not.
  const bool is_message = std::string(called.name) == "RecvFromThatRank";
  const bool at_deadline = fault == Fault::cut || fault == Fault::stopped || fault == Fault::late ||
                           (fault == Fault::other && is_message && kind != RankKind::nodes);
  // Who leaves at once takes away what the others have still to hear; who comes late finds them gone.
  const testing::Tally has_been_told;
  const int to_wait_for = fault == Fault::reset || fault == Fault::other ? 3 : 2;
  support::run_ranks(kind, 3,
                     [&, kind = kind, fault = fault, &called = called](const std::shared_ptr<Group>& group) {
                       const std::vector<at::Tensor> processes = group->all_gather(torch::tensor({getpid()}));
                       called.call(*group);  // all is well
                       group->barrier();     // for all
                       const auto start = Clock::now();
                       std::string told;
                       int named = -1;
                       try {
                         if (group->rank() == 1) do_fault(fault, *group, called, has_been_told);
                         for (int i = 0; i < 3; ++i) called.call(*group);  // who sends may be done with one
                         ADD_FAILURE() << "rank " << group->rank() << " went on";
                       } catch (const GroupAborted& aborted) {
                         told = aborted.what();
                         named = aborted.failure().rank;
                       } catch (const Error& error) {
                         told = error.what();
                       }
                       if (fault != Fault::other && group->rank() != 1) {
                         EXPECT_EQ(named, 1) << told;
                       }
                       // A backend has words of its own for that.
                       if (fault == Fault::killed && kind == RankKind::gloo && group->rank() != 1) {
                         EXPECT_THAT(told, HasSubstr("ended without a word"));
                       }
                       if (fault == Fault::other) {
                         EXPECT_THAT(told, HasSubstr("rank 1"));
                       }
                       // Nowhere near the deadline, where it is not the deadline that tells. Who is dead, or cannot
                       // be reached, is known within a second, and a busy machine may take two more.
                       if (!at_deadline) {
                         const bool is_gone = fault == Fault::killed || fault == Fault::reset;
                         EXPECT_LT(Clock::now() - start, is_gone ? 3s : 10s) << told;
                       }
                       // What it says last to all: a tenth of a second is more than a kernel waits to confirm it.
                       if (fault == Fault::cut && group->rank() == 0) {
                         std::this_thread::sleep_for(100ms);
                         EXPECT_TRUE(is_something_unconfirmed()) << "it was not cut off";
                       }
                       if ((fault == Fault::cut || fault == Fault::stopped) && group->rank() == 0)
                         kill(processes[1].template item<int>(), SIGKILL);
                       has_been_told.add();
                       (void)has_been_told.wait_for(to_wait_for, 200ms);
                     },
                     {.timeout = at_deadline ? 700ms : 30'000ms, .allowed_signal = SIGKILL});
}

}  // namespace
}  // namespace lockstep::comm
