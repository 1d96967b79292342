#include "lockstep/trace/explain.h"

#include <algorithm>
#include <map>
#include <set>

namespace lockstep::trace {
namespace {

// The collectives of a rank in a group, by number.
using Sequence = std::map<std::uint64_t, const TracedCall*>;

struct GroupRecord {
  std::vector<int> ranks;
  std::map<int, Sequence> sequences;  // of the ranks that have left a trace
};

using Groups = std::map<std::string, GroupRecord>;
using ByRank = std::map<int, const RankTrace*>;

const std::string& group_name(const RankTrace& trace, const TracedCall& call) {
  return trace.groups[std::size_t(call.group)].name;
}

Groups groups_of(const std::vector<RankTrace>& traces) {
  Groups groups;
  for (const RankTrace& trace : traces) {
    for (const TracedGroup& group : trace.groups) {
      GroupRecord& record = groups[group.name];
      record.ranks = group.ranks;
      record.sequences[trace.rank];  // whatever it called
    }
    for (const TracedCall& call : trace.calls)
      if (call.peer < 0) groups[group_name(trace, call)].sequences[trace.rank][call.number] = &call;
  }
  return groups;
}

// Shapes may differ: elements are what counts (comm/group.h).
bool fits(const TracedCall& a, const TracedCall& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.elements == b.elements && a.detail == b.detail;
}

std::vector<Side> sides_at(const GroupRecord& group, std::uint64_t number) {
  std::vector<Side> sides;
  for (const auto& [rank, sequence] : group.sequences) {
    const auto found = sequence.find(number);
    if (found == sequence.end()) continue;
    const auto same =
        std::find_if(sides.begin(), sides.end(), [&](const Side& side) { return fits(side.call, *found->second); });
    if (same != sides.end())
      same->ranks.push_back(rank);
    else
      sides.push_back({.ranks = {rank}, .call = *found->second});
  }
  std::stable_sort(sides.begin(), sides.end(),
                   [](const Side& a, const Side& b) { return a.ranks.size() > b.ranks.size(); });
  return sides;
}

std::optional<Mismatch> first_mismatch(const std::string& name, const GroupRecord& group) {
  std::set<std::uint64_t> numbers;
  for (const auto& [rank, sequence] : group.sequences)
    for (const auto& [number, call] : sequence) numbers.insert(number);
  for (const std::uint64_t number : numbers)
    if (std::vector<Side> sides = sides_at(group, number); sides.size() > 1)
      return Mismatch{.group = name, .number = number, .sides = std::move(sides)};
  return {};
}

// The first collective that some rank is still in.
std::optional<std::uint64_t> stopped_at(const GroupRecord& group) {
  std::optional<std::uint64_t> first;
  for (const auto& [rank, sequence] : group.sequences)
    for (const auto& [number, call] : sequence)
      if (call->end == 0) first = std::min(first.value_or(number), number);
  return first;
}

void sort_arrivals(Stop& stop) {
  std::stable_sort(stop.arrived.begin(), stop.arrived.end(),
                   [](const Arrival& a, const Arrival& b) { return a.time < b.time; });
}

Stop stop_of(const std::string& name, const GroupRecord& group, std::uint64_t number) {
  Stop stop{.group = name};
  for (const int rank : group.ranks) {
    const auto record = group.sequences.find(rank);
    if (record == group.sequences.end()) {
      stop.without_file.push_back(rank);
      continue;
    }
    const Sequence& sequence = record->second;
    // One that is further than its ring reaches back was there.
    if (sequence.empty() || sequence.rbegin()->first < number) {
      stop.absent.push_back(rank);
    } else if (const auto found = sequence.find(number); found != sequence.end()) {
      stop.arrived.push_back({rank, found->second->begin});
    }
  }
  sort_arrivals(stop);
  stop.call = *group.sequences.at(stop.arrived.front().rank).at(number);
  return stop;
}

// The peer's half of a message.
const TracedCall* answer_to(const TracedCall& call, const std::string& group, int rank, const RankTrace& peer) {
  const std::string other = call.kind == "send" ? "recv" : "send";
  for (const TracedCall& theirs : peer.calls)
    if (theirs.peer == rank && theirs.kind == other && theirs.number == call.number &&
        group_name(peer, theirs) == group)
      return &theirs;
  return nullptr;
}

Stop stop_of_message(const RankTrace& trace, const TracedCall& call, const ByRank& by_rank) {
  Stop stop{.group = group_name(trace, call), .call = call, .arrived = {{trace.rank, call.begin}}};
  const auto peer = by_rank.find(call.peer);
  const TracedCall* const answer =
      peer == by_rank.end() ? nullptr : answer_to(call, stop.group, trace.rank, *peer->second);
  if (peer == by_rank.end())
    stop.without_file = {call.peer};
  else if (answer == nullptr)
    stop.absent = {call.peer};
  else
    stop.arrived.push_back({call.peer, answer->begin});
  sort_arrivals(stop);
  return stop;
}

// One for each message, though both of its ranks may be in it.
std::vector<Stop> stopped_messages(const std::vector<RankTrace>& traces, const ByRank& by_rank) {
  std::vector<Stop> stops;
  for (const RankTrace& trace : traces)
    for (const TracedCall& call : trace.calls) {
      if (call.peer < 0 || call.end != 0) continue;
      const auto peer = by_rank.find(call.peer);
      const bool is_told = peer != by_rank.end() && call.peer < trace.rank;
      const TracedCall* const answer =
          is_told ? answer_to(call, group_name(trace, call), trace.rank, *peer->second) : nullptr;
      if (answer == nullptr || answer->end != 0) stops.push_back(stop_of_message(trace, call, by_rank));
    }
  return stops;
}

// What it must have taken part in: somebody has come out of it.
LastDeed deed_without_file(int rank, const Groups& groups) {
  LastDeed last{.rank = rank};
  for (const auto& [name, group] : groups) {
    if (std::find(group.ranks.begin(), group.ranks.end(), rank) == group.ranks.end()) continue;
    for (const auto& [other, sequence] : group.sequences)
      for (const auto& [number, call] : sequence)
        if (call->end != 0 && (!last.call || call->begin > last.call->begin)) {
          last.call = *call;
          last.group = name;
        }
  }
  return last;
}

LastDeed deed_of(const RankTrace& trace) {
  LastDeed last{.rank = trace.rank, .has_file = true, .step = trace.step, .phase = trace.phase};
  if (trace.calls.empty()) return last;
  last.call = trace.calls.back();
  last.group = group_name(trace, *last.call);
  return last;
}

constexpr const char* kNoTrace = " left no trace: killed, stopped, or its file is elsewhere";

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (const int rank : ranks) text += (rank == ranks.front() ? "" : ", ") + std::to_string(rank);
  return text;
}

void blame_mismatch(Explanation& e) {
  const std::vector<Side>& sides = e.mismatches.front().sides;
  const bool has_majority = sides[0].ranks.size() > sides[1].ranks.size();
  for (std::size_t i = has_majority ? 1 : 0; i < sides.size(); ++i)
    e.culprits.insert(e.culprits.end(), sides[i].ranks.begin(), sides[i].ranks.end());
  std::sort(e.culprits.begin(), e.culprits.end());
  e.verdict = ranks_text(e.culprits) + (has_majority ? (e.culprits.size() == 1 ? " calls" : " call") +
                                                           std::string(" something else than most do")
                                                     : " call different things, as many one as the other");
}

// Who is missed somewhere and waits nowhere himself; all who are missed where they wait for one another.
void blame_missing(Explanation& e) {
  std::set<int> missed, waiting;
  for (const Stop& stop : e.stops) {
    missed.insert(stop.absent.begin(), stop.absent.end());
    missed.insert(stop.without_file.begin(), stop.without_file.end());
    for (const Arrival& arrival : stop.arrived) waiting.insert(arrival.rank);
  }
  for (const int rank : missed)
    if (!waiting.contains(rank)) e.culprits.push_back(rank);
  if (missed.empty()) return;
  if (e.culprits.empty()) {
    e.culprits.assign(missed.begin(), missed.end());
    e.verdict = ranks_text(e.culprits) + " wait for one another in different calls";
    return;
  }
  // Of several, the one whose failure the group has heard of first; the others were on their way.
  const int named = e.failure ? e.failure->rank : -1;
  if (std::find(e.culprits.begin(), e.culprits.end(), named) != e.culprits.end()) e.culprits = {named};
  const bool is_silent = std::find(e.without_file.begin(), e.without_file.end(), e.culprits[0]) != e.without_file.end();
  e.verdict = ranks_text(e.culprits) + " did not come" + (is_silent ? std::string(" and") + kNoTrace : "");
}

void blame(Explanation& e) {
  if (!e.mismatches.empty())
    blame_mismatch(e);
  else
    blame_missing(e);
  if (!e.culprits.empty()) return;
  if (e.failure && e.failure->rank >= 0) {
    e.culprits = {e.failure->rank};
    e.verdict = ranks_text(e.culprits) + ", by what the group has heard; nobody is missed in a collective";
  } else if (!e.without_file.empty()) {
    // Killed while the others computed: who got their SIGTERM in time has written a file.
    e.culprits = e.without_file;
    e.verdict = ranks_text(e.culprits) + kNoTrace + "; nobody is missed in a collective";
  } else {
    e.verdict = "nobody is missed in a collective";
  }
}

void add_last_deeds(Explanation& e, const Groups& groups, const ByRank& by_rank) {
  std::set<int> missed(e.culprits.begin(), e.culprits.end());
  for (const Stop& stop : e.stops) {
    missed.insert(stop.absent.begin(), stop.absent.end());
    missed.insert(stop.without_file.begin(), stop.without_file.end());
  }
  for (const int rank : missed) {
    const auto found = by_rank.find(rank);
    e.last.push_back(found == by_rank.end() ? deed_without_file(rank, groups) : deed_of(*found->second));
  }
}

}  // namespace

Explanation explain(const std::vector<RankTrace>& traces) {
  const RankTrace& first = traces.front();
  Explanation e{.run = first.run, .attempt = first.attempt, .world = first.world};
  ByRank by_rank;
  for (const RankTrace& trace : traces) {
    e.ranks.push_back(trace.rank);
    by_rank[trace.rank] = &trace;
    if (!e.failure) e.failure = trace.failure;
  }
  std::sort(e.ranks.begin(), e.ranks.end());
  const Groups groups = groups_of(traces);
  std::set<int> silent;  // of those that were in a group at all: a damaged file may claim any number of ranks
  for (const auto& [name, group] : groups)
    for (const int rank : group.ranks)
      if (!by_rank.contains(rank)) silent.insert(rank);
  e.without_file.assign(silent.begin(), silent.end());
  for (const auto& [name, group] : groups) {
    if (std::optional<Mismatch> found = first_mismatch(name, group)) e.mismatches.push_back(std::move(*found));
    if (const auto number = stopped_at(group)) e.stops.push_back(stop_of(name, group, *number));
  }
  for (Stop& stop : stopped_messages(traces, by_rank)) e.stops.push_back(std::move(stop));
  const auto time = [](const Stop& stop) { return stop.arrived.front().time; };
  std::stable_sort(e.stops.begin(), e.stops.end(), [&](const Stop& a, const Stop& b) { return time(a) < time(b); });
  std::stable_sort(e.mismatches.begin(), e.mismatches.end(),
                   [](const Mismatch& a, const Mismatch& b) { return a.sides[0].call.begin < b.sides[0].call.begin; });
  // Calls that all have come to were only interrupted by what stopped the others.
  const auto is_missed = [](const Stop& stop) { return !stop.absent.empty() || !stop.without_file.empty(); };
  if (!e.mismatches.empty() || std::any_of(e.stops.begin(), e.stops.end(), is_missed))
    std::erase_if(e.stops, [&](const Stop& stop) { return !is_missed(stop); });
  blame(e);
  add_last_deeds(e, groups, by_rank);
  return e;
}

}  // namespace lockstep::trace
