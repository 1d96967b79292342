#include "lockstep/launch/nodes/following.h"

#include <algorithm>

namespace lockstep::launch {

namespace meet = rendezvous;
using std::chrono::milliseconds;

namespace {

// How long an agent that hosts in another's place waits for the rest when most are there: for the shell of a lost
// connection to be tried again.
constexpr milliseconds kSurvivorsTogether{1'000};

}  // namespace

Following::Following(const NodesSettings& settings, const std::optional<Inheritance>& inherited)
    : settings_(settings), inherited_(inherited ? inherited->last.generation : 0) {
  if (inherited) majority_.inherit(inherited->last);
}

meet::Time Following::time_of(Clock::time_point when) const { return std::chrono::floor<milliseconds>(when - origin_); }

std::string Following::take_survivor(std::uint64_t id, const meet::Join& join, bool own) {
  if (join.generation != inherited_)
    return "it comes from generation " + std::to_string(join.generation) + " of the job, and this agent from " +
           std::to_string(inherited_);
  if (!own && !majority_.joins(id, int(std::clamp<std::int64_t>(join.rank, -1, 1'000'000))))
    return "node rank " + std::to_string(join.rank) + " of generation " + std::to_string(inherited_) +
           " is here already";
  return {};
}

void Following::on_ping(std::uint64_t id, const meet::Ping& ping) {
  if (ping.answered <= 0) return;
  const Clock::time_point then{std::chrono::nanoseconds(ping.answered)};
  majority_.proves(id, ping.generation, time_of(std::min(then, Clock::now())));
}

milliseconds Following::lease(bool running) const {
  const milliseconds silence = settings_.silence();
  return running ? std::min(silence, majority_.until(settings_.hand_over()) - now()) : silence;
}

bool Following::is_fresh() const { return majority_.until(settings_.hand_over()) >= now() + settings_.silence(); }

void Following::describe(meet::Situation& situation, std::int64_t generation) const {
  situation.votes = majority_.votes();
  situation.votes_needed = generation > inherited_ ? 0 : majority_.votes_needed();
  situation.voters = majority_.nodes_inherited();
  situation.votes_until = 2 * settings_.hand_over();
  situation.others_until = kSurvivorsTogether;
}

}  // namespace lockstep::launch
