#pragma once

// Before an operation each rank says what it is about to do, in one small collective. So ranks that disagree are told,
// and those that have joined find out in what they are to take part.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/async.h"
#include "lockstep/horovod/session.h"

namespace lockstep::horovod {

struct ProcessSet::Members {
  std::vector<int> ranks;                         ///< in the job
  std::unique_ptr<comm::AsyncCollectives> queue;  ///< of this rank's operations; null: not included, or removed
};

enum class Kind : std::int64_t {
  allreduce = 1,
  adasum,
  allgather,
  broadcast,
  alltoall,
  reducescatter,
  barrier,
  object,
  join
};

/// What a rank is about to do. 40 bytes, which travel at once (comm/shm/staging.h).
struct Call {
  Kind kind{};
  std::int64_t detail = 0;  ///< comm::ReduceOp, or root in the set
  std::int64_t dtype = 0;   ///< c10::ScalarType
  std::int64_t elements = 0;
  std::int64_t rounds = 0;  ///< join: operations that it has taken part in since
  bool operator==(const Call&) const = default;
};

/// "allreduce(10 x Float)".
std::string describe(const Call& call);

/// What those that have not joined call, or null when all have. Pure; `names` are the ranks' numbers in the job. Error
/// that names both sides when they differ; UsageError when some have joined and it is no allreduce whose result zeros
/// leave alone.
const Call* agreed(const std::vector<Call>& calls, const std::vector<int>& names);

/// The rank, in the set, that joined last, when all have: of those that did so at the same time the highest. Pure.
int last_joined(const std::vector<Call>& calls);

/// Says `mine` and hears the others; throws on all ranks alike what agreed() throws. The group can be used afterwards.
void agree(comm::Group& group, const std::vector<int>& names, const Call& mine);

/// Takes part with zeros in whatever the others call, until all have joined. The number in the job of the last.
int join_others(comm::Group& group, const std::vector<int>& names);

}  // namespace lockstep::horovod
