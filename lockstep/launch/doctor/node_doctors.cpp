#include "lockstep/launch/doctor/node_doctors.h"

#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/doctor/hosts.h"
#include "lockstep/launch/doctor/line_reader.h"
#include "lockstep/launch/doctor/peer.h"
#include "lockstep/launch/doctor/peer_words.h"
#include "lockstep/rendezvous/agent_store.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
using rendezvous::AgentStore;
using std::chrono::milliseconds;

const std::string kVerdict = "doctor/verdict";

// The lines to and from the doctor of a node are values of the store, numbered. No line is empty: an empty value says
// that nobody asks any more.
std::string key_of(int node, const char* direction, int number) {
  return "doctor/" + std::to_string(node) + "/" + direction + "/" + std::to_string(number);
}
std::string address_key(int node) { return "doctor/" + std::to_string(node) + "/address"; }
std::string host_key(int node) { return "doctor/" + std::to_string(node) + "/host"; }

milliseconds left_until(OtherDoctor::TimePoint deadline) {
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(deadline - Clock::now()));
}

// The doctor of a node, for node 0.
class StoreDoctor : public OtherDoctor {
 public:
  StoreDoctor(AgentStore& store, int node) : store_(store), node_(node) {}
  ~StoreDoctor() override {
    try {
      store_.set(key_of(node_, "asked", asked_), "");
    } catch (const Error&) {  // without a store the job is over, and so are they
    }
  }

 private:
  std::optional<std::string> next(TimePoint deadline) override {
    try {
      std::string line = store_.get(key_of(node_, "said", said_), left_until(deadline));
      ++said_;
      return line;
    } catch (const Error& error) {
      why_ = error.what();
      return std::nullopt;
    }
  }
  bool write(const std::string& line, TimePoint) override {
    try {
      store_.set(key_of(node_, "asked", asked_++), line);
      return true;
    } catch (const Error& error) {
      why_ = error.what();
      return false;
    }
  }
  std::string last_words() const override { return why_; }

  AgentStore& store_;
  const int node_;
  int asked_ = 0, said_ = 0;
  std::string why_;
};

// The lines of the store as those of a socket, for a doctor that answers (peer.h). Two threads wait for both.
class StoreLines {
 public:
  explicit StoreLines(int node) : node_(node) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw_errno("doctor: socketpair");
    ours_ = base::UniqueFd(ends[0]);
    its_ = base::UniqueFd(ends[1]);
    asked_ = std::thread([this] { pass_on_questions(); });
    said_ = std::thread([this] { pass_on_answers(); });
  }
  // The doctor has ended: by the empty value, its silence, or because the store is gone.
  ~StoreLines() {
    its_ = base::UniqueFd();
    said_.join();
    asked_.join();
  }
  StoreLines(const StoreLines&) = delete;
  StoreLines& operator=(const StoreLines&) = delete;

  int fd() const { return its_.get(); }

 private:
  void pass_on_questions() {
    try {
      AgentStore store;
      for (int i = 0;; ++i) {
        const std::string line = store.get(key_of(node_, "asked", i), kPeerSilence);
        if (line.empty() || !write_line(ours_.get(), line, Clock::now() + kWayTime)) break;
      }
    } catch (const Error&) {  // nobody can ask any more
    }
    shutdown(ours_.get(), SHUT_WR);
  }

  void pass_on_answers() {
    try {
      AgentStore store;
      LineReader lines(ours_.get());
      for (int i = 0; const auto line = lines.next(Clock::now() + 2 * kPeerSilence); ++i)
        store.set(key_of(node_, "said", i), *line);
    } catch (const Error&) {  // nor hear
      shutdown(ours_.get(), SHUT_RDWR);
    }
  }

  const int node_;
  base::UniqueFd ours_, its_;
  std::thread asked_, said_;
};

void answer(const NodeDoctor& own) {
  const StoreLines lines(own.node);
  serve_as_peer(own.description, lines.fd(), lines.fd());
}

std::vector<Examined> ask_all(AgentStore& store, int nodes, milliseconds patience) {
  std::vector<Contact> contacts;
  for (int node = 0; node < nodes; ++node) {
    const std::string host = store.get(host_key(node), patience), address = store.get(address_key(node), patience);
    contacts.push_back({"node " + std::to_string(node) + " (" + host + ", " + address + ")", address,
                        std::make_unique<StoreDoctor>(store, node)});
  }
  HostsFound found = examine_hosts(std::move(contacts), patience);
  for (HostFacts& host : found.hosts) host.by_shell = false;
  return check_hosts(found.hosts, found.ways);
}

}  // namespace

NodesVerdict examine_nodes(const NodeDoctor& own, milliseconds patience) {
  AgentStore store;
  store.set(address_key(own.node), own.address);
  store.set(host_key(own.node), own.host);
  NodesVerdict verdict;
  if (own.node == 0) {
    std::thread here([own] {
      try {
        answer(own);
      } catch (const Error&) {  // it does not answer, then
      }
    });
    try {
      verdict.all = ask_all(store, own.nodes, patience);
    } catch (...) {
      here.detach();  // the process ends with what is thrown
      throw;
    }
    here.join();
    store.set(kVerdict, anything_wrong(verdict.all) ? "wrong" : "good");
  } else {
    answer(own);
  }
  verdict.wrong = store.get(kVerdict, kPeerSilence) == "wrong";
  verdict.first_host = store.get(host_key(0));
  return verdict;
}

}  // namespace lockstep::launch
