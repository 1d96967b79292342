#pragma once

// Nodes of a job that outlive the processes on them: each attempt forks its ranks anew, and nodes are lost, left out
// and come back in between.

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/generation.h"
#include "lockstep/comm/shm/shm_group.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/ranks.h"

namespace lockstep::support {

class Machines {
 public:
  explicit Machines(std::vector<int> ranks_per_node) : ranks_(std::move(ranks_per_node)) {
    for (const int ranks : ranks_) segments_.push_back(base::Segment::create(ranks));
  }

  /// One attempt of all ranks; their exit codes, -1 for who was killed.
  std::vector<int> run(const RankMain& body) {
    const int port = free_port();
    std::vector<pid_t> pids;
    for (std::size_t node = 0; node < ranks_.size(); ++node)
      for (int local = 0; local < ranks_[node]; ++local) {
        pids.push_back(fork());
        if (pids.back() != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int code = 1;
        try {
          code = body(join(int(node), local, port));
        } catch (const GroupAborted&) {
          code = kAbortedCode;
        } catch (const std::exception& error) {
          std::cerr << "node " << node << ", local rank " << local << ": " << error.what() << '\n';
        }
        _exit(code);
      }
    std::vector<int> codes;
    for (const pid_t pid : pids) {
      int status = 0;
      waitpid(pid, &status, 0);
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    for (std::size_t node = 0; node < ranks_.size(); ++node)
      segments_[node] = base::next_generation(std::move(segments_[node]), ranks_[node]);
    return codes;
  }

  /// What it had is gone.
  void lose(std::size_t node) { segments_[node] = base::Segment::create(ranks_[node]); }

  /// Another machine is in this one's place from now on; what this one has kept.
  base::Segment sit_out(std::size_t node) {
    return std::exchange(segments_[node], base::Segment::create(ranks_[node]));
  }
  void come_back(std::size_t node, base::Segment kept) { segments_[node] = std::move(kept); }

  /// As a death between the commits of two nodes leaves it: this one without the last step of each of its states, whose
  /// buffers were written in turn.
  void take_back_a_step(std::size_t node) {
    base::ControlPage& page = segments_[node].control();
    for (base::RegionWords& region : page.regions) {
      const std::optional<base::Commit> now = base::committed(region);
      if (!now) continue;
      const std::uint32_t buffers = region.buffers.load();
      const base::Commit before{.step = now->step - 1, .buffer = (now->buffer + buffers - 1) % buffers};
      base::replace(region.commit, before.pack(page.generation.load()));
    }
  }

  /// The job goes on without it, or with one more, which is empty.
  void leave(std::size_t node) {
    ranks_.erase(ranks_.begin() + std::ptrdiff_t(node));
    segments_.erase(segments_.begin() + std::ptrdiff_t(node));
  }
  void come(int ranks) { come_in(ranks_.size(), ranks, base::Segment::create(ranks)); }
  /// In the place of a node that has left, with what it has kept.
  void come_in(std::size_t node, int ranks, base::Segment segment) {
    ranks_.insert(ranks_.begin() + std::ptrdiff_t(node), ranks);
    segments_.insert(segments_.begin() + std::ptrdiff_t(node), std::move(segment));
  }

 private:
  std::shared_ptr<comm::Group> join(int node, int local, int port) const {
    const int here = ranks_[std::size_t(node)];
    base::Segment segment = base::Segment::open(segments_[std::size_t(node)].invitation(), here);
    if (ranks_.size() == 1) return std::make_shared<comm::ShmGroup>(std::move(segment), local, kTimeout);
    return join_nodes(std::move(segment), ranks_, node, local, port, {.timeout = kTimeout});
  }

  static constexpr std::chrono::milliseconds kTimeout{20'000};

  std::vector<int> ranks_;
  std::vector<base::Segment> segments_;
};

}  // namespace lockstep::support
