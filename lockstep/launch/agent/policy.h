#pragma once

// Whether and when a job is started again, and at which port: pure functions.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::launch {

/// What is known when all processes of an attempt have ended.
struct AttemptFacts {
  int code = 0;                         ///< what the job would exit with now
  bool stopped = false;                 ///< somebody asked the agent to end
  bool never_ran = false;               ///< the program could not be executed
  bool left_behind = false;             ///< some process could not be killed, and may still write
  bool bad_input = false;               ///< a worker of ours said so: the same input fails again
  bool port_was_taken = false;          ///< a stranger has the MASTER_PORT that we had chosen: is_strangers()
  bool joined = false;                  ///< some worker joined the segment: a program of ours, which uses no port
  std::chrono::milliseconds uptime{0};  ///< from the first worker's start to the failure
};

/// What has happened to the job before.
struct History {
  int restarts = 0;           ///< restarts done, of max_restarts
  int ports_lost = 0;         ///< attempts lost to a port race; they do not count as restarts
  int failures_in_a_row = 0;  ///< attempts in a row, this one included, that failed within kQuickFailure
};

/// Why a job is not started again when a process of it is left.
inline constexpr const char* kLeftBehind = "a process of this attempt could not be killed";

enum class Next {
  finish,    ///< the job is over
  restart,   ///< start all workers again; one of max_restarts is used up
  new_port,  ///< the same attempt again, with another port
  regroup,   ///< start all workers again with other nodes; no failure
};

/// "finish", "restart", "new_port", "regroup".
std::string to_string(Next next);

struct Decision {
  Next next = Next::finish;
  std::chrono::milliseconds delay{0};  ///< before the start
  std::string why_not;                 ///< why restarts that are left are not used; empty: none are, or success
  int restarts = 0;                    ///< done so far, this one included
};

/// A failure sooner than this after the start makes the next start wait.
inline constexpr std::chrono::milliseconds kQuickFailure{10'000};
/// A port race shows at once, when rank 0 cannot bind; and it will not be lost many times.
inline constexpr std::chrono::milliseconds kPortRace{60'000};
inline constexpr int kMaxPortsLost = 5;

Decision decide(const AttemptFacts& facts, const History& history, int max_restarts,
                const std::vector<int>& no_restart_codes);
/// The same, and `history` has this attempt afterwards.
Decision decide_and_count(const AttemptFacts& facts, History& history, int max_restarts,
                          const std::vector<int>& no_restart_codes);

/// The sockets, by inode, of the processes that an attempt has left behind.
struct OurSockets {
  std::vector<ino_t> inodes;
  bool complete = true;  ///< all of these processes could be looked into
};

/// Whether a port that is taken is a stranger's: some listener there is no socket of `ours`. A daemon that a worker
/// left behind is ours, and what cannot be told from one counts as ours: an attempt is repeated for nothing only when
/// it was lost to somebody else for sure. `listeners` are the inodes of the sockets that listen at the port; none: it
/// is held by a socket that does not listen, whose inode nobody tells.
bool is_strangers(const std::vector<ino_t>& listeners, const OurSockets& ours);

/// Whether a signal that comes after `first` (0: the job is ending for another reason) ends
/// everything at once: Ctrl-C again, or SIGTERM again. Others do not: a terminal that closes sends
/// SIGHUP twice, and a service manager SIGTERM and SIGHUP, to a job that shall have its grace period.
bool ends_at_once(int first, int signal);

/// The wait before a start: none after the first quick failure in a row, then 100 ms, doubled
/// each time, at most 10 s.
std::chrono::milliseconds back_off(int failures_in_a_row);

/// A port to try as MASTER_PORT, for a random number: outside the range [low, high] from which
/// the kernel takes the ports of outgoing connections, so that no such connection can occupy it
/// between the probe and rank 0's bind. Where that range leaves less than 1,000 ports from 10,000
/// to 65,535, any of those.
int port_candidate(std::uint64_t random, int low, int high);

}  // namespace lockstep::launch
