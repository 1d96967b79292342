#pragma once

// Where the contents of a checkpoint lie in a shared state (state/layout.h): all that is needed to save a state by
// whoever has its memory, and neither the program that made it nor libtorch. As text it stands in the segment beside
// the state (base/published_text.h), for the agent, when all workers are dead. Pure functions, any thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/control_page.h"
#include "lockstep/checkpoint/store/kept_numbers.h"
#include "lockstep/checkpoint/store/write.h"

namespace lockstep::checkpoint {

/// A tensor whose bytes are in each state buffer, or in the frozen area that belongs to it.
struct PlacedTensor {
  std::string name;
  std::string dtype;  ///< as TensorBytes
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  bool frozen = false;
  std::uint64_t offset = 0;  ///< bytes from the start of a buffer, or of a frozen area
  bool operator==(const PlacedTensor&) const = default;
};

struct PlacedSet {
  std::string file;
  std::vector<PlacedTensor> tensors;
  bool operator==(const PlacedSet&) const = default;
};

/// Bytes of a buffer.
struct PlacedBytes {
  std::string name;
  std::uint64_t offset = 0;  ///< from the start of a buffer
  std::uint64_t size = 0;
  bool operator==(const PlacedBytes&) const = default;
};

struct StatePlan {
  std::string folder;               ///< of the checkpoints, absolute; empty: nobody shall save but the program
  Retention retention;              ///< of that folder
  int region = 0;                   ///< of the segment
  SavedState constant;              ///< what does not change from step to step: no record, no counts, no kept bytes
  std::uint64_t buffer_bytes = 0;   ///< from one state buffer to the next
  std::uint64_t frozen_areas = 0;   ///< where the first one begins, from the start of the region
  std::uint64_t frozen_bytes = 0;   ///< from one to the next
  std::uint64_t frozen_number = 0;  ///< in a buffer: the std::uint64_t that says which area belongs to it
  // In a buffer, the record of its step: doubles, then an std::int64_t and an std::uint64_t.
  std::uint64_t loss = 0;
  std::uint64_t gradient_norm = 0;
  std::uint64_t samples = 0;
  std::uint64_t skipped = 0;
  std::uint64_t counts = 0;             ///< in a buffer: std::uint64_t of each parameter, how often it was updated
  std::vector<std::string> parameters;  ///< in the order of the counts
  std::vector<PlacedBytes> kept;
  std::vector<KeptNumber> place;  ///< in these
  std::vector<PlacedSet> files;
  bool operator==(const StatePlan&) const = default;
};

/// What `commit` has in `region`, the memory of the state region. Tensors refer to that memory. Error when the region
/// is shorter than the plan says, which is how a plan of another program shows.
Contents contents_at(const StatePlan& plan, std::span<const std::byte> region, const base::Commit& commit);

/// Of the models of a job.
std::string format_plans(const std::vector<StatePlan>& plans);

/// UsageError for what format_plans() has not written.
std::vector<StatePlan> parse_plans(std::string_view text);

}  // namespace lockstep::checkpoint
