#include "lockstep/rendezvous/hand_over.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace lockstep::rendezvous {
namespace {

// Who has not come yet was never proven to stand by this agent.
constexpr Time kNever{-1'000'000'000'000};

}  // namespace

Heir heir_at(const Membership& last, Time since, Time patience) {
  Time end{0};
  for (std::size_t i = 0; i < last.heirs.size(); ++i) {
    if (last.heirs[i].empty()) continue;
    end += patience;
    if (since >= end) continue;
    const int rank = int(i) + 1;
    if (rank == last.rank) return {.turn = Turn::host, .rank = rank};
    return {.turn = Turn::follow, .rank = rank, .until = end};
  }
  return {};
}

void Majority::begin(std::int64_t generation, const std::vector<std::uint64_t>& ids, bool heirs, Time now) {
  gathers_ = false;
  if (!heirs) return;
  Record& record = records_[generation];
  record = {.nodes = int(ids.size()), .voters = {}};
  // Who will know of this membership has read what is sent now.
  for (std::size_t i = 1; i < ids.size(); ++i)
    record.voters.push_back({.rank = int(i), .id = ids[i], .here = true, .proven = now});
}

void Majority::inherit(const Membership& last) {
  inherited_ = last.generation;
  nodes_inherited_ = last.nodes;
  gathers_ = true;
  Record& record = records_[last.generation];
  record = {.nodes = last.nodes, .voters = {}};
  for (int rank = 0; rank < last.nodes; ++rank)
    if (rank != last.rank) record.voters.push_back({.rank = rank, .id = 0, .here = false, .proven = kNever});
}

bool Majority::joins(std::uint64_t id, int rank) {
  if (rank < 0 || rank >= nodes_inherited_) return false;
  const auto record = records_.find(inherited_);
  if (record == records_.end()) return true;  // nothing hangs on it any more
  const auto voter = std::ranges::find(record->second.voters, rank, &Voter::rank);
  if (voter == record->second.voters.end() || voter->here) return false;
  voter->id = id;
  voter->here = true;
  return true;
}

void Majority::proves(std::uint64_t id, std::int64_t generation, Time then) {
  forget(generation, id);
  for (auto& [number, record] : records_)
    for (Voter& voter : record.voters)
      if (voter.here && voter.id == id) voter.proven = std::max(voter.proven, then);
}

void Majority::resigns(std::uint64_t id) { forget(std::numeric_limits<std::int64_t>::max(), id); }

void Majority::goes(std::uint64_t id) {
  for (auto& [generation, record] : records_)
    for (Voter& voter : record.voters)
      if (voter.here && voter.id == id) voter.here = false;
}

// What is left of a record matters as long as those who go by it are enough.
void Majority::forget(std::int64_t before, std::uint64_t id) {
  for (auto at = records_.begin(); at != records_.end() && at->first < before;) {
    Record& record = at->second;
    std::erase_if(record.voters, [&](const Voter& voter) { return voter.here && voter.id == id; });
    at = int(record.voters.size()) < record.needed() ? records_.erase(at) : std::next(at);
  }
}

std::string Majority::gone() const {
  for (const auto& [generation, record] : records_) {
    if (gathers_ && generation == inherited_) continue;
    const auto gone = std::ranges::count(record.voters, false, &Voter::here);
    if (gone >= record.needed()) return std::to_string(gone) + " of the " + std::to_string(record.nodes) + " nodes";
  }
  return {};
}

Time Majority::until(Time limit) const {
  Time until = Time::max();
  for (const auto& [generation, record] : records_) {
    std::vector<Time> proven;
    for (const Voter& voter : record.voters) proven.push_back(voter.proven);
    std::ranges::sort(proven);
    if (int(proven.size()) >= record.needed())
      until = std::min(until, proven[std::size_t(record.needed() - 1)] + limit);
  }
  return until;
}

int Majority::votes() const {
  const auto record = records_.find(inherited_);
  if (nodes_inherited_ == 0 || record == records_.end()) return votes_needed();
  const auto counts = [](const Voter& voter) { return voter.here && voter.proven != kNever; };
  return 1 + int(std::ranges::count_if(record->second.voters, counts));
}

int Majority::votes_needed() const { return nodes_inherited_ == 0 ? 0 : nodes_inherited_ / 2 + 1; }

}  // namespace lockstep::rendezvous
