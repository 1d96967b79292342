#include "lockstep/horovod/session.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/comm/collectives.h"
#include "lockstep/horovod/agreement.h"

namespace lockstep::horovod {
namespace {

struct Session {
  // A program that ends without shutdown() may have been stopped by an error: peers may never come to what it has
  // called.
  ~Session() {
    if (all->queue && !all->queue->is_idle())
      world.group()->abort("rank " + std::to_string(world.rank()) + " ends with operations under way");
  }
  comm::World world;
  std::shared_ptr<ProcessSet::Members> all;
};

std::mutex session_mutex;
std::shared_ptr<Session> current_session;

std::shared_ptr<Session> session() {
  const std::lock_guard lock(session_mutex);
  if (!current_session) throw UsageError("horovod: init() has not been called, or shutdown() since");
  return current_session;
}

std::shared_ptr<Session> take_session() {
  const std::lock_guard lock(session_mutex);
  return std::move(current_session);
}

// Ends the job of a program that did not, before what its thread uses is destroyed.
void end_at_exit() { (void)take_session(); }

const comm::Topology& place() { return session()->world.group()->topology(); }

std::shared_ptr<ProcessSet::Members> members_of(std::vector<int> ranks, const std::shared_ptr<comm::Group>& group) {
  auto members = std::make_shared<ProcessSet::Members>();
  members->ranks = std::move(ranks);
  if (group) members->queue = std::make_unique<comm::AsyncCollectives>(group);
  return members;
}

}  // namespace

void init(comm::InitOptions options) {
  if (is_initialized()) return;
  comm::World world = comm::init(std::move(options));
  std::vector<int> ranks(std::size_t(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto all = members_of(ranks, comm::duplicate(*world.group()));
  static const int registered = std::atexit(end_at_exit);
  if (registered != 0) throw Error("horovod: init() cannot have shutdown() called at exit");
  const std::lock_guard lock(session_mutex);
  current_session.reset(new Session{std::move(world), std::move(all)});
}

void shutdown() {
  if (const std::shared_ptr<Session> last = take_session()) last->all->queue.reset();
}

bool is_initialized() {
  const std::lock_guard lock(session_mutex);
  return current_session != nullptr;
}

int rank() { return place().rank; }
int size() { return place().world; }
int local_rank() { return place().local_rank; }
int local_size() { return place().local_world; }
int cross_rank() { return place().node; }
int cross_size() { return place().nodes; }
bool is_homogeneous() { return place().world == place().nodes * place().local_world; }

std::shared_ptr<ProcessSet::Members> ProcessSet::any() const { return members_ ? members_ : session()->all; }

std::vector<int> ProcessSet::ranks() const { return any()->ranks; }
int ProcessSet::size() const { return int(any()->ranks.size()); }

bool ProcessSet::included() const {
  const std::vector<int> all = ranks();
  return std::find(all.begin(), all.end(), horovod::rank()) != all.end();
}

int ProcessSet::rank() const { return members().queue->rank(); }

ProcessSet::Members& ProcessSet::members() const {
  const std::shared_ptr<Members> members = any();
  if (!included()) {
    std::string list;
    for (const int member : members->ranks) list += (list.empty() ? "" : ", ") + std::to_string(member);
    throw UsageError("horovod: rank " + std::to_string(horovod::rank()) + " is not in the process set of the ranks " +
                     list);
  }
  if (!members->queue) throw UsageError("horovod: the process set has been removed");
  return *members;
}

ProcessSet add_process_set(const std::vector<int>& ranks) {
  return ProcessSet(members_of(ranks, session()->world.group()->new_group(ranks)));
}

void remove_process_set(const ProcessSet& set) {
  if (!set.handle()) throw UsageError("horovod: the process set of all ranks cannot be removed; shutdown() ends it");
  set.handle()->queue.reset();
}

}  // namespace lockstep::horovod
