#include "lockstep/comm/collective_note.h"

#include <cstddef>
#include <iterator>

namespace lockstep::comm {

CollectiveNote make_note(Collective collective, int detail, const at::Tensor& tensor) {
  return {.collective = collective,
          .detail = std::uint16_t(detail),
          .dtype = std::int32_t(tensor.scalar_type()),
          .elements = tensor.numel()};
}

bool answers(const CollectiveNote& mine, const CollectiveNote& theirs) {
  CollectiveNote expected = mine;
  if (mine.collective == Collective::recv) expected.collective = Collective::send;
  return theirs == expected;
}

std::string describe(const CollectiveNote& note) {
  const char* names[] = {"nothing",      "all_reduce", "broadcast", "all_gather", "barrier", "reduce_scatter",
                         "shared_empty", "all_to_all", "step",      "send",       "recv",    "monitored_barrier"};
  if (note.collective == Collective::barrier) return "barrier()";
  if (note.collective == Collective::monitored_barrier) return "monitored_barrier()";
  if (note.collective == Collective::new_group) return "new_group()";
  if (note.collective == Collective::step) return "step(" + std::to_string(note.elements) + ")";
  if (std::size_t(note.collective) >= std::size(names)) return "an unknown collective";
  const bool is_message = note.collective == Collective::send || note.collective == Collective::recv;
  const char* detail = is_message ? ", tag " : note.collective == Collective::broadcast ? ", root " : ", op ";
  return std::string(names[int(note.collective)]) + "(" + std::to_string(note.elements) + " x " +
         c10::toString(c10::ScalarType(note.dtype)) + detail + std::to_string(note.detail) + ")";
}

std::string disagreement(int rank, const CollectiveNote& note, int peer, const CollectiveNote& theirs) {
  return "ranks disagree: rank " + std::to_string(rank) + " calls " + describe(note) + ", rank " +
         std::to_string(peer) + " calls " + describe(theirs);
}

}  // namespace lockstep::comm
