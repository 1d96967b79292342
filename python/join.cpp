#include "python/join.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/rendezvous/local_socket.h"
#include "lockstep/rendezvous/segment_exchange.h"

namespace lockstep::python {
namespace {

constexpr char kYes[] = "yes ";

std::string random_name() {
  std::uint64_t number[2] = {};
  if (getrandom(number, sizeof number, 0) != sizeof number) throw_errno("getrandom");
  char text[48];
  std::snprintf(text, sizeof text, "c10d:%016" PRIx64 "%016" PRIx64, number[0], number[1]);
  return text;
}

std::string text_at(c10d::Store& store, const std::string& key) {
  const std::vector<std::uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

void put(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::string wait_for(c10d::Store& store, const std::string& key, int rank, std::chrono::milliseconds timeout) {
  try {
    store.wait({key}, timeout);
  } catch (const std::exception& error) {
    throw Error("lockstep: rank " + std::to_string(rank) + " did not come to the process group within " +
                std::to_string(timeout.count() / 1000) + " s");
  }
  return text_at(store, key);
}

// Rank 0 looks at all names, decides, and says so to all; on one node they then meet at a socket of this name.
std::string agree(c10d::Store& store, const JoinOptions& options) {
  // A store may outlive a group and see another one of the same name: each time has keys of its own.
  const std::string time = std::to_string(store.add("times/" + std::to_string(options.rank), 1)) + "/";
  const std::string mine = own_node().to_string();
  std::string answer;
  if (options.rank == 0) {
    std::vector<std::string> nodes{mine};
    for (int rank = 1; rank < options.size; ++rank)
      nodes.push_back(wait_for(store, time + std::to_string(rank), rank, options.timeout));
    answer = refusal(nodes);
    if (answer.empty()) answer = kYes + random_name();
    put(store, time + "answer", answer);
  } else {
    put(store, time + std::to_string(options.rank), mine);
    answer = wait_for(store, time + "answer", 0, options.timeout);
  }
  if (!answer.starts_with(kYes)) throw UsageError(answer);
  return answer.substr(sizeof kYes - 1);
}

// The job's own group, of which later ones are parts.
std::mutex job_mutex;
std::weak_ptr<comm::Group> job_group;

base::Whole whole_of(const JoinOptions& options) {
  const std::lock_guard lock(job_mutex);
  const std::shared_ptr<comm::Group> job = job_group.lock();
  if (options.global_ranks.empty() || job == nullptr || job->shared_node() == nullptr) return {};
  return job->node().whole_of({options.global_ranks.begin(), options.global_ranks.end()});
}

std::uint64_t inode(const char* path) {
  struct stat status = {};
  if (stat(path, &status) != 0) throw_errno(path);
  return status.st_ino;
}

}  // namespace

std::string NodeName::to_string() const { return host + " " + kernel + " " + namespaces; }

NodeName own_node() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  NodeName node{.host = host};
  std::ifstream("/proc/sys/kernel/random/boot_id") >> node.kernel;
  node.namespaces = std::to_string(rendezvous::own_pid_namespace()) + "." + std::to_string(inode("/proc/self/ns/net"));
  return node;
}

std::string refusal(const std::vector<std::string>& nodes) {
  for (std::size_t rank = 1; rank < nodes.size(); ++rank) {
    if (nodes[rank] == nodes[0]) continue;
    const auto host = [&](std::size_t of) { return nodes[of].substr(0, nodes[of].find(' ')); };
    return "lockstep: rank 0 is on " + host(0) + ", rank " + std::to_string(rank) + " on " + host(rank) +
           (host(0) == host(rank) ? " in another namespace" : "") +
           "; all ranks of a lockstep process group need to be on one node: use gloo here";
  }
  return "";
}

std::shared_ptr<comm::Group> join(c10d::Store& store, const JoinOptions& options) {
  if (options.size == 1) return std::make_shared<comm::SingleGroup>();
  rendezvous::Place place{.rank = options.rank,
                          .world_size = options.size,
                          .local_rank = options.rank,
                          .local_world_size = options.size,
                          .launcher = "torch.distributed",
                          .job_key = agree(store, options)};
  const auto group = std::make_shared<comm::ShmGroup>(rendezvous::share_segment(place, options.timeout), options.rank,
                                                      options.timeout, whole_of(options));
  if (options.global_ranks.empty()) {
    const std::lock_guard lock(job_mutex);
    job_group = group;
  }
  return group;
}

}  // namespace lockstep::python
