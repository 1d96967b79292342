#include "lockstep/launch/flags/host_list.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>
#include <string_view>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/limits.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {
namespace {

class HostCollector {
 public:
  // `place` begins the message about one word.
  void add(const std::string& place, const std::string& word) {
    const auto wrong = [&](const std::string& why) {
      return UsageError(place + ": '" + base::shown(word.substr(0, 100)) + "' " + why);
    };
    HostSlots host{word, {}};
    std::string digits;
    const std::size_t bracket = word.find(']');
    if (word.starts_with('[') && bracket != std::string::npos) {
      host.name = word.substr(1, bracket - 1);
      digits = word.substr(bracket + 1);
    } else if (std::ranges::count(word, ':') == 1) {  // an address of IPv6 has at least two
      host.name = word.substr(0, word.find(':'));
      digits = word.substr(word.find(':'));
    }
    if (!is_host(host.name) || (!digits.empty() && digits.front() != ':'))
      throw wrong("is no host (expected for example node1, node1:4 or [::1]:4)");
    if (!digits.empty()) host.slots = number(digits.substr(1), wrong);
    add(std::move(host), wrong);
  }

  // "node1 slots=4"; what else stands there is Open MPI's own.
  void add_line(const std::string& place, const std::string& line) {
    std::istringstream words(line);
    std::string name;
    if (!(words >> name)) return;
    add(place, name);
    for (std::string word; words >> word;) {
      const auto wrong = [&](const std::string& why) {
        return UsageError(place + ": '" + base::shown(word.substr(0, 100)) + "' " + why);
      };
      if (!word.starts_with("slots=")) throw wrong("is not slots=N");
      hosts_.back().slots = number(word.substr(6), wrong);
    }
  }

  std::vector<HostSlots> take() { return std::move(hosts_); }

 private:
  static bool is_host(const std::string& name) {
    return !name.empty() && name.size() <= 253 && name.front() != '-' && std::ranges::all_of(name, [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
             std::string_view(".-_:%").find(c) != std::string_view::npos;
    });
  }

  template <class Wrong>
  static int number(const std::string& digits, const Wrong& wrong) {
    int slots = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), slots);
    if (error != std::errc() || end != digits.data() + digits.size() || slots < 1 || slots > base::kMaxLocalRanks)
      throw wrong("has no number of slots from 1 to " + std::to_string(base::kMaxLocalRanks));
    return slots;
  }

  template <class Wrong>
  void add(HostSlots host, const Wrong& wrong) {
    if (!known_.insert(host.name).second) throw wrong("is there twice");
    if (hosts_.size() == std::size_t(kMaxHosts))
      throw wrong("is one more than " + std::to_string(kMaxHosts) + " hosts");
    hosts_.push_back(std::move(host));
  }

  std::vector<HostSlots> hosts_;
  std::unordered_set<std::string> known_;
};

void add_lines(HostCollector& hosts, const std::string& name, const std::string& text) {
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);)
    hosts.add_line(name + ", line " + std::to_string(++number), line.substr(0, line.find('#')));
}

}  // namespace

std::vector<HostSlots> parse_hosts(const std::string& flag, const std::string& text, const ReadFile& read) {
  HostCollector hosts;
  if (text.find('/') != std::string::npos) {
    const auto content = read(text);
    if (!content) throw UsageError(flag + ": the file '" + base::shown(text) + "' cannot be read");
    add_lines(hosts, flag + ": " + base::shown(text), *content);
  } else {
    std::size_t begin = 0;
    for (std::size_t comma = 0; comma != std::string::npos; begin = comma + 1) {
      comma = text.find(',', begin);
      hosts.add(flag, text.substr(begin, comma - begin));
    }
  }
  std::vector<HostSlots> all = hosts.take();
  if (all.empty()) throw UsageError(flag + ": '" + base::shown(text) + "' names no host");
  return all;
}

std::vector<HostSlots> parse_discovered_hosts(const std::string& script, const std::string& output,
                                              std::optional<int> slots) {
  HostCollector hosts;
  add_lines(hosts, script, output);
  std::vector<HostSlots> all = hosts.take();
  for (HostSlots& host : all)
    if (!host.slots) host.slots = slots;
  return all;
}

}  // namespace lockstep::launch
