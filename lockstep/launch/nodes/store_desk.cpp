#include "lockstep/launch/nodes/store_desk.h"

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "lockstep/rendezvous/local_socket.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launch {

namespace meet = rendezvous;

namespace {

base::UniqueFd never_waiting(base::UniqueFd fd) {
  fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  return fd;
}

}  // namespace

StoreDesk::StoreDesk(EventLoop& loop, Events events)
    : loop_(loop),
      events_(std::move(events)),
      name_(meet::socket_name("store")),
      listener_(loop, never_waiting(meet::listen_at(name_, meet::Carries::bytes)), [this] { on_workers(); }) {}

void StoreDesk::on_workers() {
  while (base::UniqueFd fd = listener_.accept()) {
    const std::optional<meet::Peer> peer = meet::peer_of(fd.get());
    if (!peer || peer->user != geteuid() || clients_.size() >= kMostStoreClients) continue;
    const std::uint64_t number = next_client_++;
    const int raw = fd.get();
    clients_[number].connection = std::make_unique<Connection>(
        loop_, std::move(fd), std::make_unique<PlainChannel>(raw),
        Connection::Events{.message = [this, number](const meet::Message& message) { on_message(number, message); },
                           .closed = [this, number](const std::string&, Parting) { lose(number); }});
    clients_[number].connection->trust();
  }
}

void StoreDesk::on_message(std::uint64_t number, const meet::Message& message) {
  Client& client = clients_.at(number);
  if (client.gone) return;
  if (const auto* forget = std::get_if<meet::StoreForget>(&message)) {
    if (client.waits == 0 || forget->id != client.his_id) return;  // the answer is on its way
    asked_.erase(client.waits);
    return events_.forget({.id = std::exchange(client.waits, 0)});
  }
  const auto* ask = std::get_if<meet::StoreAsk>(&message);
  if (ask == nullptr || client.waits != 0) return lose(number);  // none of ours talks so
  client.his_id = ask->id;
  client.waits = ++last_id_;
  asked_[client.waits] = number;
  meet::StoreAsk own = *ask;
  own.id = client.waits;
  own.generation = 0;
  events_.ask(own);
}

void StoreDesk::answer(const meet::StoreAnswer& answer) {
  const auto asked = asked_.find(answer.id);
  if (asked == asked_.end()) return;
  Client& client = clients_.at(asked->second);
  asked_.erase(asked);
  client.waits = 0;
  meet::StoreAnswer his = answer;
  his.id = client.his_id;
  client.connection->send(his);
}

// The connection stays until no function uses it any more.
void StoreDesk::lose(std::uint64_t number) {
  Client& client = clients_.at(number);
  if (std::exchange(client.gone, true)) return;
  client.connection->close();
  if (client.waits != 0) {
    asked_.erase(client.waits);
    events_.forget({.id = std::exchange(client.waits, 0)});
  }
  sweep_ = loop_.at(EventLoop::Clock::now(), [this] { sweep(); });
}

void StoreDesk::sweep() {
  std::erase_if(clients_, [](const auto& entry) { return entry.second.gone; });
}

}  // namespace lockstep::launch
