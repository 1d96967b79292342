#include "lockstep/launch/nodes/reception.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/base/descriptor_limit.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launch {

Reception::Reception(EventLoop& loop, base::UniqueFd listener, Settings settings, Events events)
    : loop_(loop),
      listener_(loop, std::move(listener), [this] { on_guests(); }),
      settings_(std::move(settings)),
      events_(std::move(events)) {
  on_keep_alive();
}

void Reception::tell(bool& told, const std::string& line) {
  if (!std::exchange(told, true) && events_.notes) events_.notes(line);
}

void Reception::on_guests() {
  for (int i = 0; i < kGuestsAtATime; ++i) {
    base::UniqueFd fd = listener_.accept();
    if (!fd && listener_.none_left())
      tell(told_of_descriptors_, "no file descriptor is left for nodes that come: " + base::descriptor_limit_text());
    if (!fd) return;
    const auto stranger = [](const auto& entry) { return !entry.second.trusted && !entry.second.own; };
    if (std::size_t(std::ranges::count_if(guests_, stranger)) >= kMostStrangers)
      guests_.erase(std::ranges::find_if(guests_, stranger));
    const int number = fd.get();
    const std::string from = rendezvous::to_text(rendezvous::other_end(number));
    guests_.at(add(std::move(fd), settings_.accept_channel(number))).from = from;
  }
}

std::uint64_t Reception::add(base::UniqueFd fd, std::unique_ptr<Channel> channel, bool own) {
  const std::uint64_t id = next_id_++;
  Connection::Events events{.message = [this, id](const rendezvous::Message& message) { on_message(id, message); },
                            .closed = [this, id](const std::string& why, Parting how) { lose(id, why, how); }};
  guests_[id].own = own;
  guests_[id].connection = std::make_unique<Connection>(loop_, std::move(fd), std::move(channel), std::move(events));
  return id;
}

void Reception::on_message(std::uint64_t id, const rendezvous::Message& message) {
  Guest& guest = guests_.at(id);
  if (guest.gone) return;
  if (guest.trusted) guest.heard = Clock::now();
  const auto* ping = std::get_if<rendezvous::Ping>(&message);
  if (ping == nullptr || !guest.trusted) return events_.message(id, message);
  const auto good_for = events_.ping ? events_.ping(id, *ping) : settings_.silence;
  guest.connection->send(rendezvous::Pong{.sent = ping->sent,
                                          .wall = wall_clock(),
                                          .answered = Clock::now().time_since_epoch() / std::chrono::nanoseconds(1),
                                          .good_for = good_for.count()});
}

void Reception::send(std::uint64_t id, const rendezvous::Message& message) {
  if (const auto found = guests_.find(id); found != guests_.end() && !found->second.gone)
    found->second.connection->send(message);
}

int Reception::trust(std::uint64_t id) {
  Guest& guest = guests_.at(id);
  guest.trusted = true;
  guest.heard = Clock::now();
  return guest.connection->trust();
}

bool Reception::trusts(std::uint64_t id) const {
  const auto found = guests_.find(id);
  return found != guests_.end() && found->second.trusted;
}

// The connection stays until no function uses it any more.
void Reception::lose(std::uint64_t id, const std::string& why, Parting how) {
  const auto found = guests_.find(id);
  if (found == guests_.end() || found->second.gone) return;
  if (!found->second.trusted && why == rendezvous::kTorchrunsProtocol)
    tell(told_of_torchrun_,
         "a torchrun agent at " + found->second.from +
             " wants to join, which it cannot (it speaks to a TCPStore): start lockstep run on every "
             "node, or torchrun");
  if (!found->second.trusted && why == kNoKey)
    tell(told_of_key_, "somebody at " + found->second.from +
                           " without the job's key was turned away: is --secret-file the same on all nodes?");
  if (!found->second.trusted && why == kHasKey)
    tell(told_of_key_, "an agent at " + found->second.from +
                           " with a key was turned away, for this job has none: is --secret-file given on all nodes?");
  found->second.gone = why;
  found->second.how = how;
  sweep_ = loop_.at(Clock::now(), [this] { sweep(); });
}

void Reception::sweep() {
  struct Gone {
    std::uint64_t id;
    Guest guest;
  };
  std::vector<Gone> gone;
  for (auto at = guests_.begin(); at != guests_.end();) {
    const bool ready = at->second.gone && at->second.connection->settled();
    if (ready) gone.push_back({at->first, std::move(at->second)});
    at = ready ? guests_.erase(at) : std::next(at);
  }
  for (const auto& [id, guest] : gone)
    if (guest.trusted) events_.gone(id, *guest.gone, guest.how, guest.heard);
}

void Reception::on_keep_alive() {
  keep_alive_ = loop_.at(Clock::now() + settings_.keep_alive / 2, [this] { on_keep_alive(); });
  for (auto& [id, guest] : guests_) {
    const auto limit = guest.trusted ? settings_.silence : kStrangersTime;
    if (guest.gone) {  // he does not read why
      guest.connection->close();
      sweep_ = loop_.at(Clock::now(), [this] { sweep(); });
    } else if (Clock::now() - guest.heard >= limit) {
      guest.connection->close();
      lose(id, "nothing was heard of it for " + std::to_string(limit.count()) + " ms", Parting::silent);
    }
  }
}

void Reception::shut() { listener_.shut(); }

bool Reception::all_has_arrived() const {
  return std::ranges::all_of(
      guests_, [](const auto& entry) { return entry.second.own || entry.second.connection->has_arrived(); });
}

}  // namespace lockstep::launch
