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
void compare_clocks(OtherDoctor& peer, HostFacts& host) {
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

WayFacts measure_between(OtherDoctor& from, OtherDoctor& to, const std::string& host) {
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

std::vector<Contact> contacts_by_shell(const std::vector<std::string>& hosts, const std::vector<std::string>& shell,
                                       const std::vector<std::string>& program) {
  std::vector<Contact> contacts;
  for (const std::string& host : hosts)
    contacts.push_back({host, host, std::make_unique<RemotePeer>(remote_command(shell, host, program))});
  return contacts;
}

HostsFound examine_hosts(std::vector<Contact> contacts, std::chrono::milliseconds patience) {
  HostsFound found;
  const auto deadline = Steady::now() + patience;
  for (Contact& contact : contacts) {
    HostFacts host{.name = contact.name};
    try {
      read_description(contact.doctor->find(kPeerHello, deadline), host);
      compare_clocks(*contact.doctor, host);
    } catch (const Error& error) {
      host.error = error.what();
      host.findings.clear();
      contact.doctor.reset();
    }
    found.hosts.push_back(std::move(host));
  }
  for (std::size_t from = 0; from < contacts.size(); ++from) {
    for (std::size_t to = 0; to < contacts.size(); ++to) {
      const bool left_out = contacts.size() >= kManyHosts && from != 0 && to != 0;
      if (from == to || left_out || !contacts[from].doctor || !contacts[to].doctor) continue;
      WayFacts way = measure_between(*contacts[from].doctor, *contacts[to].doctor, contacts[to].address);
      way.from = contacts[from].name;
      way.to = contacts[to].name;
      found.ways.push_back(std::move(way));
    }
  }
  return found;
}

}  // namespace lockstep::launch
