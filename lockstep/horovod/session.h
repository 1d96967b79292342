#pragma once

// Who takes part: Horovod's init(), rank() and process sets.
//
// As with Horovod there is one job in a process: what init() joins is found by every function, in any thread. Functions
// that need it are a UsageError without it. For tests and libraries that are handed a group: init({.group = ...}).

#include <memory>
#include <vector>

#include "lockstep/comm/world.h"

namespace lockstep::horovod {

/// Joins the job that the environment describes (comm/world.h). Once more does nothing, as with Horovod.
void init(comm::InitOptions options = {});
/// Returns when all operations called have ended; leaves the job. Without init() it does nothing. A program that ends
/// without it, with operations under way, aborts the job: it may have failed, and its peers never come.
void shutdown();
bool is_initialized();

int rank();
int size();
int local_rank();
int local_size();
/// The number of this machine, and how many there are: 0 and 1 as long as a job is on one machine.
int cross_rank();
int cross_size();
/// Whether each machine has as many ranks.
bool is_homogeneous();

/// The ranks of an operation: all unless add_process_set() made it.
class ProcessSet {
 public:
  struct Members;  ///< of this rank: agreement.h

  /// All ranks of the job.
  ProcessSet() = default;
  explicit ProcessSet(std::shared_ptr<Members> members) : members_(std::move(members)) {}

  /// Their numbers in the job, rising.
  std::vector<int> ranks() const;
  /// Whether this rank is one of them. Operations on a set are for its ranks alone, UsageError for others.
  bool included() const;
  int size() const;
  /// This rank's number in the set. UsageError when it is not included.
  int rank() const;

  /// What operations work with. UsageError unless this rank is included and the set has not been removed.
  Members& members() const;
  const std::shared_ptr<Members>& handle() const { return members_; }

 private:
  std::shared_ptr<Members> any() const;
  std::shared_ptr<Members> members_;  ///< null: all
};

/// A set of these ranks, rising. A collective of all ranks of the job, with the same list.
[[nodiscard]] ProcessSet add_process_set(const std::vector<int>& ranks);
/// Returns when all operations of this rank on the set have ended; the set is of no use afterwards. All its ranks call
/// it. The set of all ranks cannot be removed: UsageError.
void remove_process_set(const ProcessSet& set);

}  // namespace lockstep::horovod
