#include "lockstep/comm/network/store_meeting.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"
#include "lockstep/rendezvous/environment.h"
#include "lockstep/rendezvous/own_address.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::comm {
namespace {

// Of an address that is looked up for its host alone.
constexpr int kAnyPort = 1;

const c10d::TCPStore* tcp_store_in(c10d::Store& store) {
  c10d::Store* inner = &store;
  if (auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(&store))
    inner = prefixed->getUnderlyingNonPrefixStore().get();  // which it holds
  return dynamic_cast<const c10d::TCPStore*>(inner);
}

template <class Call>
void or_store_error(const StoreMeeting& meeting, Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    throw Error("lockstep: " + meeting.name() + ": " + base::line_of(error.what()));
  }
}

}  // namespace

void StoreMeeting::publish(const std::string& key, const std::string& value) {
  or_store_error(*this, [&] { store_.set(keys_ + key, std::vector<std::uint8_t>(value.begin(), value.end())); });
}

std::optional<std::string> StoreMeeting::look_up(const std::string& key) {
  std::optional<std::string> found;
  or_store_error(*this, [&] {
    if (!store_.check({keys_ + key})) return;
    const std::vector<std::uint8_t> value = store_.get(keys_ + key);
    found.emplace(value.begin(), value.end());
  });
  return found;
}

void StoreMeeting::withdraw(const std::string& key) {
  or_store_error(*this, [&] { store_.deleteKey(keys_ + key); });
}

std::string interface_asked_for() {
  return rendezvous::socket_interface([](const char* variable) { return std::getenv(variable); });
}

std::string own_address_beside(c10d::Store& store) {
  const std::vector<rendezvous::Interface> interfaces = rendezvous::own_interfaces();
  if (const std::string wanted = interface_asked_for(); !wanted.empty())
    return rendezvous::host_text(rendezvous::address_of(wanted, interfaces));
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  const c10d::TCPStore* const tcp = tcp_store_in(store);
  const std::string host = tcp != nullptr ? std::string(tcp->getHost()) : name;
  const std::string what = tcp != nullptr ? "the host of torch.distributed's store" : "the name of rank 0's machine";
  const rendezvous::SocketAddress there =
      rendezvous::reachable(what, host, rendezvous::resolve(what, host, kAnyPort), interfaces);
  return rendezvous::host_text(rendezvous::own_end_towards(there));
}

}  // namespace lockstep::comm
