#include "lockstep/comm/network/words.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/text.h"

namespace lockstep::comm {
namespace {

using rendezvous::Backend;

// Of another length, or of no network, it would be somewhere else that is connected to.
bool is_place(const rendezvous::SocketAddress& address) {
  return (address.bytes.ss_family == AF_INET && address.length == sizeof(sockaddr_in)) ||
         (address.bytes.ss_family == AF_INET6 && address.length == sizeof(sockaddr_in6));
}

bool is_one_of(int rank, int ranks) { return 0 <= rank && rank < ranks && ranks <= kMostWorld; }

}  // namespace

bool Hello::is_sound() const {
  return is_one_of(rank, world) && is_one_of(local_rank, local_world) && is_place(address);
}

// A rank may be none of its world's: that is told.
bool Present::is_sound() const {
  return rank >= 0 && world > 0 && backend >= Backend::automatic && backend <= Backend::ipc;
}

// -1: an agent's failure, or one of which nobody knows whose it is.
bool News::is_sound() const {
  return rank >= -1 && rank < kMostWorld && kind <= NewsKind::answer && length <= sizeof cause;
}

std::string shown_text(const char* from, std::size_t most) { return base::shown({from, strnlen(from, most)}); }

std::string refusal_of(const Hello& hello, int world, const std::vector<Hello>& all) {
  const std::string who = "rank " + std::to_string(hello.rank) + " (" + shown_in(hello.host) + ")";
  if (hello.world != world)
    return who + " was started for " + std::to_string(hello.world) + " ranks, rank 0 for " + std::to_string(world);
  if (hello.rank < 1 || hello.rank >= world) return who + " is none of the ranks 1 to " + std::to_string(world - 1);
  if (all[std::size_t(hello.rank)].world != 0)
    return "two processes are rank " + std::to_string(hello.rank) + ": on " +
           shown_in(all[std::size_t(hello.rank)].host) + " and on " + shown_in(hello.host);
  return {};
}

std::vector<int> nodes_of(const std::vector<Hello>& ranks) {
  std::vector<int> nodes;
  int node = -1;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Hello& hello = ranks[rank];
    node += hello.local_rank == 0 ? 1 : 0;
    const bool follows = hello.local_rank == 0 || (rank > 0 && hello.local_rank == ranks[rank - 1].local_rank + 1 &&
                                                   hello.local_world == ranks[rank - 1].local_world);
    const bool ends_well = hello.local_rank + 1 == hello.local_world ||
                           (rank + 1 < ranks.size() && ranks[rank + 1].local_rank == hello.local_rank + 1);
    if (!follows || !ends_well)
      throw UsageError("group: rank " + std::to_string(rank) + " (" + shown_in(hello.host) + ") is local rank " +
                       std::to_string(hello.local_rank) + " of " + std::to_string(hello.local_world) +
                       " there; the ranks of a node must follow one another");
    nodes.push_back(node);
  }
  return nodes;
}

std::string who_is(const Present& one) {
  return "rank " + std::to_string(one.rank) + " (process " + std::to_string(one.pid) + " on " + shown_in(one.host) +
         ")";
}

std::string contradiction(const Present& one, const std::vector<Present>& all) {
  const Present& zero = all.front();
  if (one.world != zero.world)
    return who_is(one) + " was started with world_size " + std::to_string(one.world) + ", " + who_is(zero) + " with " +
           std::to_string(zero.world);
  if (one.rank < 0 || one.rank >= zero.world)
    return who_is(one) + " is none of the ranks 0 to " + std::to_string(zero.world - 1);
  if (const Present& other = all[std::size_t(one.rank)]; other.world != 0)
    return "two processes are rank " + std::to_string(one.rank) + ": " + std::to_string(other.pid) + " on " +
           shown_in(other.host) + " and " + std::to_string(one.pid) + " on " + shown_in(one.host);
  return {};
}

std::string disagreement(const std::vector<Present>& all) {
  const Present& zero = all.front();
  for (const Present& one : all)
    if (one.backend != zero.backend)
      return who_is(one) + " asks for backend '" + to_string(one.backend) + "', " + who_is(zero) + " for '" +
             to_string(zero.backend) + "'";
  for (const Present& one : all)
    if ((zero.backend == Backend::shm || zero.backend == Backend::ipc) && text_in(one.machine) != text_in(zero.machine))
      return "backend '" + std::string(to_string(zero.backend)) +
             "' is for ranks of one node (machine, namespaces of processes and network, user), and " + who_is(zero) +
             " and " + who_is(one) + " are on different ones";
  return {};
}

News news_of(const Failure& failure) {
  News news{.rank = failure.rank, .exit_code = failure.exit_code, .step = failure.step};
  put_text(news.phase, failure.phase);
  news.length = std::uint32_t(failure.cause.copy(news.cause, sizeof news.cause));
  return news;
}

Failure failure_in(const News& news) {
  return {.rank = news.rank,
          .step = news.step,
          .phase = shown_in(news.phase),
          .cause = base::shown({news.cause, news.length}),
          .exit_code = news.exit_code};
}

News answer_of(int rank, const std::vector<int>& awaited) {
  News news{.rank = rank, .kind = NewsKind::answer};
  const std::size_t bytes = std::min(awaited.size() * sizeof(int), sizeof news.cause);
  if (bytes > 0) std::memcpy(news.cause, awaited.data(), bytes);
  news.length = std::uint32_t(bytes);
  return news;
}

std::vector<int> awaited_in(const News& answer) {
  std::vector<int> awaited(answer.length / sizeof(int));
  if (!awaited.empty()) std::memcpy(awaited.data(), answer.cause, awaited.size() * sizeof(int));
  return awaited;
}

}  // namespace lockstep::comm
