#pragma once

// The MPI that has started this process: found, loaded, and initialised once in it. Torch-free.
//
// The library is linked with no MPI. What it calls is in a plug-in of its own per mpi.h, liblockstep_mpi_openmpi.so and
// liblockstep_mpi_mpich.so, looked for in LOCKSTEP_MPI_DIR where that is set, else beside the program, in ../lib of it,
// where the library was installed, and where the loader looks.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/comm/network/mpi_table.h"
#include "lockstep/rendezvous/environment.h"

namespace lockstep::comm {

/// "openmpi" or "mpich": whose launcher has started this process. Pure. UsageError when that cannot be told, which
/// names LOCKSTEP_MPI, whose word counts first.
std::string mpi_of(const rendezvous::GetEnv& get);

/// UsageError unless calls may be made by any thread, one at a time. Pure.
void check_thread_level(const std::string& mpi, int level);

/// UsageError unless MPI numbers the ranks as the launcher's variables do. Pure.
void check_mpi_place(const std::string& mpi, int rank, int size, const rendezvous::Place& place);

/// Of which a process has one. All threads may call; calls of MPI come one at a time.
class MpiSession {
 public:
  /// Loads the plug-in, the first time. UsageError when it is not there: how to get it.
  static MpiSession& load();

  /// Initialises MPI, the first time, with all ranks of the job; then they wait for each other for `timeout`, and
  /// `check` may throw. When the process ends with 0 and no group has failed, MPI is finalised if it was initialised
  /// here.
  /// UsageError as of the checks above.
  void start(const rendezvous::Place& place, std::chrono::milliseconds timeout, const std::function<void()>& check);

  /// Calls `what` with the table. Error with MPI's words when it does not return 0.
  void call(const char* name, const std::function<int(const LockstepMpi&)>& what) const;

  const char* name() const { return table_->name; }
  /// The number of a group of all ranks, also of one that fails to form: the same on each, since all have begun with as
  /// many before.
  int begin_world() { return worlds_++; }
  int world_tag(int number) const { return highest_tag_ - number; }
  /// The highest that any of some ranks has is one that no group of any two of them has had. Theirs count from below.
  int next_tag() const { return next_tag_; }
  /// Streams that live when the process ends wait for nobody for long: it ends in the middle of something.
  void begin_streams() { ++streams_; }
  void end_streams() { --streams_; }
  /// Not in a forked child, and not behind MPI_Finalize, which a program that has initialised MPI calls itself.
  bool may_call() const;
  /// UsageError when there is none left.
  void take_tag(std::int64_t tag);
  /// MPI will not be finalised: that would wait for those who have failed.
  void fail() { failed_ = true; }
  /// Of the process's end.
  void finish() noexcept;

 private:
  explicit MpiSession(const LockstepMpi* table) : table_(table) {}
  bool is_over(LockstepMpiRequest& request) const;

  const LockstepMpi* const table_;
  bool started_ = false, ours_ = false;
  std::atomic<bool> failed_ = false;
  int highest_tag_ = 0;
  std::atomic<int> next_tag_ = 1, streams_ = 0;
  int worlds_ = 0;
  int process_ = 0;
  std::chrono::milliseconds timeout_{};
};

}  // namespace lockstep::comm
