#pragma once

// torchvision and torch's DataLoader in a process of their own, which measures when it is told to.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/input/input_case.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::bench {

struct PeerContender {
  std::string name;
  std::string kind;  ///< installed, tuned or floor: benchmarks/support/rows.py
};

/// benchmarks/input/torchvision_peer.py, run by a Python that has torchvision. Its end is this object's.
class PeerProcess {
 public:
  /// Returns when it has its data sets. UsageError when `python` cannot be executed or has no
  /// torchvision; Error when it says nothing in two minutes.
  PeerProcess(const std::string& python, const InputCase& input, const InputOptions& options);
  PeerProcess(const PeerProcess&) = delete;
  ~PeerProcess();

  /// The contenders in it, and the versions of what they use.
  const std::vector<PeerContender>& contenders() const { return contenders_; }
  const std::string& about() const { return about_; }

  /// How long contender `number` takes for `samples` samples. Error after two minutes.
  double seconds(std::size_t number, std::int64_t samples);

 private:
  std::string read_line();

  pid_t pid_ = -1;
  base::UniqueFd commands_;
  base::UniqueFd answers_;
  std::string unread_;
  std::vector<PeerContender> contenders_;
  std::string about_;
};

}  // namespace lockstep::bench
