#include "lockstep/launch/doctor/hosts.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/launch/doctor/peer.h"
#include "lockstep/launch/doctor/peer_words.h"
#include "lockstep/launch/doctor/remote_peer.h"
#include "lockstep/launch/doctor/way.h"
#include "lockstep/launch/machine/machine.h"

namespace lockstep::launch {
namespace {

using Steady = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr int kClockQuestions = 5;
constexpr std::chrono::seconds kQuestionTime{5};

nanoseconds now_by_epoch() {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
}

// The quickest of some answers tells the offset best: half of its time is all that it can be wrong by.
void compare_clocks(RemotePeer& peer, HostFacts& host) {
  host.uncertainty = nanoseconds::max();
  for (int i = 0; i < kClockQuestions; ++i) {
    const nanoseconds before = now_by_epoch();
    const auto begin = Steady::now();
    const nanoseconds there{std::atoll(peer.ask("time", "time ", begin + kQuestionTime).c_str())};
    const nanoseconds half = (Steady::now() - begin) / 2;
    if (half >= host.uncertainty) continue;
    host.uncertainty = half;
    host.offset = there - (before + half);
  }
}

WayFacts measure_between(RemotePeer& from, RemotePeer& to, const std::string& host) {
  WayFacts way;
  const std::string token = random_id();
  bool listens = false;
  try {
    const auto deadline = Steady::now() + kWayTime + kQuestionTime;
    const std::string port = to.ask("listen " + host + " " + token, "listening ", deadline);
    listens = true;
    std::istringstream words(from.ask("measure " + host + " " + port + " " + token, "measured ", deadline));
    std::int64_t round_trip = 0;
    words >> round_trip >> way.bytes_per_second >> way.address;
    if (!words) throw Error("its doctor speaks another language than this one");
    way.round_trip = nanoseconds(round_trip);
  } catch (const Error& error) {
    way.error = error.what();
  }
  if (!listens) return way;
  try {  // it takes part in other measurements
    if (!way.error.empty()) to.send("stop", Steady::now() + kQuestionTime);
    to.find("done", Steady::now() + kWayTime);
  } catch (const Error& error) {
    if (way.error.empty()) way.error = error.what();
  }
  return way;
}

}  // namespace

HostsFound examine_hosts(const std::vector<std::string>& hosts, const std::vector<std::string>& shell,
                         const std::vector<std::string>& program, std::chrono::milliseconds patience) {
  HostsFound found;
  std::vector<std::unique_ptr<RemotePeer>> peers;
  for (const std::string& host : hosts)
    peers.push_back(std::make_unique<RemotePeer>(remote_command(shell, host, program)));
  const auto deadline = Steady::now() + patience;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    HostFacts host{.name = hosts[i]};
    try {
      read_description(peers[i]->find(kPeerHello, deadline), host);
      compare_clocks(*peers[i], host);
    } catch (const Error& error) {
      host.error = error.what();
      host.findings.clear();
      peers[i].reset();
    }
    found.hosts.push_back(std::move(host));
  }
  for (std::size_t from = 0; from < hosts.size(); ++from) {
    for (std::size_t to = 0; to < hosts.size(); ++to) {
      const bool left_out = hosts.size() >= kManyHosts && from != 0 && to != 0;
      if (from == to || left_out || !peers[from] || !peers[to]) continue;
      WayFacts way = measure_between(*peers[from], *peers[to], hosts[to]);
      way.from = hosts[from];
      way.to = hosts[to];
      found.ways.push_back(std::move(way));
    }
  }
  return found;
}

}  // namespace lockstep::launch
