#define USE_C10D_GLOO
#include "lockstep/comm/network/gloo_streams.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <exception>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"
#include "lockstep/comm/network/c10d_streams.h"
#include "lockstep/comm/network/door.h"
#include "lockstep/comm/network/without_signals.h"
#include "lockstep/rendezvous/own_address.h"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;

// What a rank puts into the store: as many bytes of a key, and as many of its value, follow. A Gloo of 4,096 ranks says
// less than 100 KiB.
struct Entry {
  std::uint32_t key = 0, value = 0;
  static constexpr std::uint32_t kMost = 16u << 20;
};

// A store that nobody keeps: what a rank sets it tells all others, and reads what they tell while it waits for a key.
// That is enough for Gloo, of which each rank sets where it listens once, and asks for what all others have set.
class MeshStore final : public c10d::Store {
 public:
  /// `signals`: those that are blocked while it waits.
  MeshStore(Mesh& mesh, milliseconds timeout, std::function<void()> check, const sigset_t& signals)
      : check_(std::move(check)),
        patience_{std::chrono::steady_clock::now() + timeout, check_},
        limit_(timeout),
        signals_(signals) {
    for (MeshPeer& peer : mesh.peers) {
      ranks_.push_back(peer.rank);
      connections_.push_back(std::move(peer.data));
    }
    has_said_.resize(ranks_.size());
  }

  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    const Entry entry{.key = std::uint32_t(key.size()), .value = std::uint32_t(value.size())};
    or_keep([&] {
      for (std::size_t peer = 0; peer < connections_.size(); ++peer) {
        const int fd = connections_[peer].get();
        if (fd < 0) continue;
        if (!write_all(fd, &entry, sizeof entry, patience_) || !write_all(fd, key.data(), key.size(), patience_) ||
            !write_all(fd, value.data(), value.size(), patience_))
          throw_lost(peer);
      }
    });
    values_[key] = value;
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    wait({key});
    return values_[key];
  }
  void wait(const std::vector<std::string>& keys) override {
    or_keep([&] {
      while (!check(keys)) read_more();
    });
  }
  void wait(const std::vector<std::string>& keys, const milliseconds&) override { wait(keys); }
  bool check(const std::vector<std::string>& keys) override {
    return std::ranges::all_of(keys, [this](const std::string& key) { return values_.contains(key); });
  }

  /// Behind it all ranks have called it. One that is connected to all may have nothing to do and end, which those that
  /// still connect would take for a failure of Gloo's.
  void wait_until_all_are_connected(int rank) {
    const auto key = [](std::size_t of) { return "lockstep connected " + std::to_string(of); };
    set(key(std::size_t(rank)), {1});
    std::vector<std::string> keys;
    for (std::size_t peer = 0; peer < ranks_.size(); ++peer) {
      keys.push_back(key(peer));
      has_said_[peer] = values_.contains(keys.back());
    }
    wanted_ = "connect its Gloo";
    wait(keys);
  }

  std::int64_t getNumKeys() override { return std::int64_t(values_.size()); }
  c10::intrusive_ptr<c10d::Store> clone() override { throw_unused(); }
  std::int64_t add(const std::string&, std::int64_t) override { throw_unused(); }
  bool deleteKey(const std::string&) override { throw_unused(); }

  /// What was thrown here, if anything: c10d makes an error of its own of it, which says where in Gloo it came by.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  template <class Call>
  void or_keep(Call&& call) {
    try {
      call();
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }
  [[noreturn]] void throw_unused() {
    const Error error("group: this libtorch's Gloo asks of a store what lockstep's has not: take backend 'tcp'");
    failure_ = std::make_exception_ptr(error);
    throw error;
  }

  // Connections stay open behind that: a peer may still have to read what this rank has set.
  [[noreturn]] void throw_lost(std::size_t peer) const {
    const std::string rank = "rank " + std::to_string(ranks_[peer]);
    if (patience_.is_over()) throw Error(late(rank));
    throw Error("group: " + rank + " went away while the ranks' Gloo was being connected");
  }
  std::string late(const std::string& who) const {
    return "group: " + who + " did not " + wanted_ + " within " + std::to_string(limit_.count()) + " ms";
  }

  void read_more() {
    std::vector<pollfd> polled;
    for (const base::UniqueFd& connection : connections_)
      polled.push_back({.fd = connection.get(), .events = POLLIN, .revents = 0});
    const timespec slice{.tv_sec = 0, .tv_nsec = patience_.slice() * 1'000'000L};
    const int ready = ppoll(polled.data(), polled.size(), &slice, &signals_);
    for (std::size_t peer = 0; ready > 0 && peer < polled.size(); ++peer)
      if (polled[peer].revents != 0) read_entry(peer);
    if (ready <= 0 && patience_.is_over()) throw_late();
  }

  void read_entry(std::size_t peer) {
    const int fd = connections_[peer].get();
    Entry entry;
    if (!read_all(fd, &entry, sizeof entry, patience_)) throw_lost(peer);
    if (entry.key > Entry::kMost || entry.value > Entry::kMost)
      throw Error("group: rank " + std::to_string(ranks_[peer]) +
                  " says what is no place of its Gloo: has it asked for backend 'gloo', too?");
    std::string key(entry.key, '\0');
    std::vector<std::uint8_t> value(entry.value);
    if (!read_all(fd, key.data(), key.size(), patience_) || !read_all(fd, value.data(), value.size(), patience_))
      throw_lost(peer);
    values_[key] = std::move(value);
    has_said_[peer] = true;
  }

  [[noreturn]] void throw_late() const {
    std::string missing;
    for (std::size_t peer = 0; peer < ranks_.size(); ++peer)
      if (connections_[peer] && !has_said_[peer])
        missing += (missing.empty() ? "" : ", ") + ("rank " + std::to_string(ranks_[peer]));
    throw Error(late(missing));
  }

  const std::function<void()> check_;
  const Patience patience_;
  const milliseconds limit_;
  const sigset_t signals_;
  std::vector<int> ranks_;                   // as failures call them
  std::vector<base::UniqueFd> connections_;  // by rank; none to this one
  const char* wanted_ = "tell where its Gloo listens";
  std::vector<bool> has_said_;  // that, by rank
  std::map<std::string, std::vector<std::uint8_t>> values_;
  std::exception_ptr failure_;
};

c10::intrusive_ptr<c10d::Backend> connect_gloo(Mesh& mesh, milliseconds timeout, std::function<void()> check) {
  const auto own = std::ranges::find_if(mesh.peers, [](const MeshPeer& peer) { return !peer.news; });
  const int rank = int(own - mesh.peers.begin()), size = int(mesh.peers.size());
  const WithoutSignals without_signals;
  const auto store = c10::make_intrusive<MeshStore>(mesh, timeout, std::move(check), without_signals.before());
  try {
    const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(rendezvous::host_text(mesh.own)));
    options->threads = 1;  // of collectives, which nobody calls
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
    store->wait_until_all_are_connected(rank);
    return gloo;
  } catch (const std::exception& error) {
    store->rethrow();
    throw Error("group: Gloo cannot connect the ranks: " + base::line_of(error.what()));
  }
}

}  // namespace

std::unique_ptr<Streams> gloo_streams(Mesh& mesh, std::chrono::milliseconds timeout, std::function<void()> check) {
  return c10d_streams(connect_gloo(mesh, timeout, std::move(check)), mesh);
}

}  // namespace lockstep::comm
