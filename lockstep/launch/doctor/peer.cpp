#include "lockstep/launch/doctor/peer.h"

#include <poll.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/launch/doctor/line_reader.h"
#include "lockstep/launch/doctor/peer_words.h"
#include "lockstep/launch/doctor/way.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

std::string system_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return "time " + std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

std::string measured(const WayFacts& way) {
  if (!way.error.empty()) return "error " + way.error;
  return "measured " + std::to_string(way.round_trip.count()) + " " +
         std::to_string(std::int64_t(way.bytes_per_second)) + " " + way.address;
}

class Peer {
 public:
  Peer(int in, int out) : in_(in), out_(out), lines_(in) {}

  bool say(const std::string& line) { return write_line(out_, line, Clock::now() + kWayTime); }

  void serve() {
    while (const auto line = lines_.next(Clock::now() + kPeerSilence)) {
      try {
        if (!answer(*line)) return;
      } catch (const Error& error) {
        if (!say(std::string("error ") + error.what())) return;
      }
    }
  }

 private:
  bool answer(const std::string& line) {
    std::istringstream words(line);
    std::string word;
    std::string host;
    std::string token;
    int port = 0;
    words >> word;
    if (word == "time") return say(system_time());
    if (word == "stop") return true;  // what it was to end has ended
    if (word == "listen" && words >> host >> token && token.size() == kTokenSize) return listen_at(host, token);
    if (word == "measure" && words >> host >> port >> token)
      return say(measured(measure_way(host, port, token, Clock::now() + kWayTime)));
    throw Error("'" + line.substr(0, 100) + "' is no request");
  }

  bool listen_at(const std::string& host, const std::string& token) {
    const WayListener listener = listen_for_way(host);
    return say("listening " + std::to_string(listener.port)) &&
           say(serve_way(listener, token, in_, Clock::now() + kWayTime) ? "done" : "done, unserved");
  }

  int in_;
  int out_;
  LineReader lines_;
};

constexpr const char* kLevelWords[] = {"good", "note", "wrong"};

Finding::Level level_of(const std::string& word) {
  for (int i = 0; i < 3; ++i)
    if (word == kLevelWords[i]) return Finding::Level(i);
  throw Error("there is no level '" + word + "'");
}

}  // namespace

std::string describe_peer(const VersionFacts& versions, const std::vector<Finding>& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& one : findings) list.push_back({kLevelWords[int(one.level)], one.what, one.value, one.advice});
  const nlohmann::json all = {{"version", versions.lockstep},  {"commit", versions.commit},
                              {"kernel", versions.kernel},     {"processor", versions.processor},
                              {"libtorch", versions.libtorch}, {"findings", list}};
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void read_description(const std::string& text, HostFacts& host) {
  try {
    const nlohmann::json all = nlohmann::json::parse(text);
    all.at("version").get_to(host.versions.lockstep);
    all.at("commit").get_to(host.versions.commit);
    all.at("kernel").get_to(host.versions.kernel);
    all.at("processor").get_to(host.versions.processor);
    all.at("libtorch").get_to(host.versions.libtorch);
    for (const auto& one : all.at("findings")) {
      const auto words = one.get<std::array<std::string, 4>>();
      host.findings.push_back({level_of(words[0]), words[1], words[2], words[3]});
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(std::string("its doctor speaks another language than this one: ") + error.what());
  }
}

void serve_as_peer(const std::string& description, int in, int out) {
  Peer peer(in, out);
  if (peer.say(kPeerHello + description)) peer.serve();
}

}  // namespace lockstep::launch
