#pragma once

// What a rank says it is calling, so that peers can tell a mismatch.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lockstep::comm {

enum class Collective : std::uint16_t {
  all_reduce = 1,
  broadcast,
  all_gather,
  barrier,
  reduce_scatter,
  shared_empty,
  all_to_all,
  step,  ///< the exchange of a training step between nodes
  send,
  recv,
  monitored_barrier,
  new_group  ///< of several nodes: where its ranks listen
};

struct CollectiveNote {
  Collective collective{};
  std::uint16_t detail = 0;  ///< reduce op, root, or tag
  std::int32_t dtype = 0;    ///< c10::ScalarType
  std::int64_t elements = 0;
  bool operator==(const CollectiveNote&) const = default;
};

CollectiveNote make_note(Collective collective, int detail, const at::Tensor& tensor);

/// Whether a peer that calls `theirs` does its part of what this rank calls: the same, or the send to this rank's recv.
bool answers(const CollectiveNote& mine, const CollectiveNote& theirs);

/// "all_reduce(3 x Float, op 0)".
std::string describe(const CollectiveNote& note);

/// "ranks disagree: rank 0 calls ..., rank 1 calls ...".
std::string disagreement(int rank, const CollectiveNote& note, int peer, const CollectiveNote& theirs);

}  // namespace lockstep::comm
