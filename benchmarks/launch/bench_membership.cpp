// lockstep-bench-membership: how long many agents take to agree on who is in, from the first connection until the last
// of them knows its rank. One process on one thread has the hosting agent's part and theirs; the sockets are real, over
// the loopback.

#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/support/program.h"
#include "benchmarks/support/statistics.h"
#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/flags/values.h"
#include "lockstep/launch/nodes/host.h"
#include "lockstep/launch/nodes/host_line.h"
#include "lockstep/launch/nodes/secret.h"
#include "lockstep/launch/nodes/tls.h"
#include "lockstep/rendezvous/socket.h"

namespace {

using namespace lockstep;
using namespace lockstep::bench;
using Clock = launch::EventLoop::Clock;

constexpr std::chrono::seconds kDeadline{120};

struct Crowd {
  int agents = 1'000;
  const launch::Tls* tls = nullptr;  // null: plainly

  std::unique_ptr<launch::Channel> accepted(int fd) const {
    return tls == nullptr ? std::make_unique<launch::PlainChannel>(fd) : tls->accept(fd);
  }
  std::unique_ptr<launch::Channel> connected(int fd) const {
    return tls == nullptr ? std::make_unique<launch::PlainChannel>(fd) : tls->connect(fd);
  }
};

rendezvous::Join application(const launch::NodesSettings& settings, int number) {
  return {.version = "1",
          .run_id = "bench",
          .nnodes = to_string(settings.limits),
          .backend = "c10d",
          .host = "node" + std::to_string(number)};
}

// Seconds.
double agreement(const Crowd& crowd) {
  base::Outlet console = base::Outlet::console(STDERR_FILENO);
  launch::EventLoop loop(console);
  launch::NodesSettings settings;
  settings.limits.min_nodes = settings.limits.max_nodes = crowd.agents;
  settings.backend = "c10d";
  settings.host = "127.0.0.1";
  const rendezvous::SocketAddress any_port = rendezvous::resolve("bench", settings.host, 0);
  rendezvous::Listening listening = rendezvous::listen_at(any_port);
  rendezvous::SocketAddress address = any_port;
  if (getsockname(listening.fd.get(), reinterpret_cast<sockaddr*>(&address.bytes), &address.length) != 0)
    throw_errno("bench membership: getsockname");
  const rendezvous::Join own = application(settings, 0);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    throw_errno("bench membership: socketpair");
  base::UniqueFd theirs(ends[0]), seat(ends[1]);
  launch::Host host(loop,
                    {.nodes = settings,
                     .own = {.version = own.version,
                             .run_id = own.run_id,
                             .nnodes = own.nnodes,
                             .backend = own.backend,
                             .host = own.host},
                     .run_id = own.run_id,
                     .master_addr = settings.host,
                     .no_restart_codes = {},
                     .accept_channel = [&](int fd) { return crowd.accepted(fd); }},
                    std::move(listening.fd), std::move(theirs));
  const auto look_up = [address] { return rendezvous::Resolved{.addresses = {address}, .why = {}}; };
  int know = 0;
  std::vector<std::unique_ptr<launch::HostLine>> lines;
  const auto fail = [](const std::string& why) { throw Error("bench membership: " + why); };
  const auto start = Clock::now();
  for (int i = 0; i < crowd.agents; ++i) {
    lines.push_back(std::make_unique<launch::HostLine>(
        loop, settings, settings.host, application(settings, i),
        launch::HostLine::Events{
            .message =
                [&](const rendezvous::Message& said) { know += std::holds_alternative<rendezvous::Start>(said); },
            .waits = [](const std::string&) {},
            .refused = fail,
            .lost = [&](const std::string& why, launch::Parting) { fail(why); },
            .leased = [](Clock::time_point) {}}));
    if (i > 0) {
      lines.back()->connect({.look_up = look_up}, [&](int fd) { return crowd.connected(fd); });
      continue;
    }
    lines.back()->use(std::move(seat), std::make_unique<launch::PlainChannel>(ends[1]));
  }
  if (!loop.run_until([&] { return know == crowd.agents; }, start + kDeadline))
    throw Error("bench membership: " + std::to_string(know) + " of " + std::to_string(crowd.agents) + " know");
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void on_one_core() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) throw_errno("bench membership: sched_getaffinity");
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

void raise_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void measure_agreement(int agents, int rounds) {
  raise_descriptors();
  on_one_core();
  const launch::Tls tls(launch::Secret{7});
  for (const bool keyed : {false, true}) {
    std::vector<double> seconds;
    for (int round = 0; round < rounds; ++round)
      seconds.push_back(agreement({.agents = agents, .tls = keyed ? &tls : nullptr}));
    const Spread spread = spread_of(seconds);
    std::printf("%d agents agree, %-10s  median %.3f s, p10-p90 %.3f-%.3f s\n", agents,
                keyed ? "with a key" : "plainly", spread.median, spread.p10, spread.p90);
  }
}

flags::Table table_of(int& agents, int& rounds) {
  return {
      .usage = "lockstep-bench-membership [options]",
      .about = "How long the agents of many nodes take to agree on who is in: one process, one core, real sockets.\n",
      .groups = {{"Options",
                  {{"--agents", flags::integer(agents, 2, 5'000), "how many"},
                   {"--rounds", flags::integer(rounds, 1, 1'000'000), "agreements of each kind"}}}}};
}

}  // namespace

int main(int argc, char** argv) {
  int agents = 1'000, rounds = 10;
  return run_program(table_of(agents, rounds), argc, argv,
                     [&](const flags::Parsed&) { measure_agreement(agents, rounds); });
}
