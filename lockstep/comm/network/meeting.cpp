#include "lockstep/comm/network/meeting.h"

#include <c10/util/intrusive_ptr.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"
#include "lockstep/rendezvous/agent_store.h"

namespace lockstep::comm {
namespace {

class AgentsMeeting final : public Meeting {
 public:
  AgentsMeeting(const std::string& socket, std::chrono::milliseconds timeout) : store_(timeout, socket) {}

  void publish(const std::string& key, const std::string& value) override { store_.set(key, value); }
  // Who takes it away comes when all have found it.
  std::optional<std::string> look_up(const std::string& key) override {
    if (!store_.check({key})) return std::nullopt;
    return store_.get(key);
  }
  void withdraw(const std::string& key) override { store_.delete_key(key); }
  std::string name() const override { return "the agents' store"; }

 private:
  rendezvous::AgentStore store_;
};

// All ranks are its clients, rank 0 too. It outlives a restart, and the agents count restarts each for itself, so no
// number in a key would be the same on all nodes: what an attempt has left is recognised by its address, where nobody
// listens any more.
class TorchrunMeeting final : public Meeting {
 public:
  TorchrunMeeting(const std::string& host, int port, std::chrono::milliseconds timeout)
      : name_("torchrun's store at " + host + ":" + std::to_string(port)) {
    c10d::TCPStoreOptions options;
    options.port = std::uint16_t(port);
    options.timeout = timeout;
    or_error([&] {
      store_ = c10::make_intrusive<c10d::PrefixStore>("lockstep", c10::make_intrusive<c10d::TCPStore>(host, options));
    });
  }

  void publish(const std::string& key, const std::string& value) override {
    or_error([&] { store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end())); });
  }
  // In one question: behind check() a get() would wait for what has been taken away meanwhile. Of a key that is not
  // there comes back what was expected.
  std::optional<std::string> look_up(const std::string& key) override {
    std::optional<std::string> found;
    or_error([&] {
      const std::vector<std::uint8_t> nothing{'-'};
      const std::vector<std::uint8_t> value = store_->compareSet(key, nothing, nothing);
      if (value != nothing) found.emplace(value.begin(), value.end());
    });
    return found;
  }
  bool outlives_attempts() const override { return true; }
  void withdraw(const std::string& key) override {
    or_error([&] { store_->deleteKey(key); });
  }
  std::string name() const override { return name_; }

 private:
  template <class Call>
  void or_error(Call&& call) const {
    try {
      call();
    } catch (const std::exception& error) {
      throw Error("group: " + name_ + ": " + base::line_of(error.what()));
    }
  }

  const std::string name_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::unique_ptr<Meeting> meeting_of(const rendezvous::Place& place, std::chrono::milliseconds timeout) {
  if (!place.agent_store.empty()) return std::make_unique<AgentsMeeting>(place.agent_store, timeout);
  if (place.store_at_master) return std::make_unique<TorchrunMeeting>(place.master_addr, place.master_port, timeout);
  return nullptr;
}

}  // namespace lockstep::comm
