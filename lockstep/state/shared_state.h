#pragma once

// The training state of a node: one region of the segment, laid out by a Layout, that all
// local ranks share. Who writes what, when, and how a step becomes the committed one.
//
// Two mappings: tensors see the region through a read-only one, only the update and the
// gradient slots go through the writable one. The committed buffer is named by the region's
// commit word alone, the one that a step writes by its target word; nothing derives either from
// the number of the step.
//
// One SharedState per rank; not thread-safe.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/node.h"
#include "lockstep/state/layout.h"
#include "lockstep/state/pin.h"

namespace lockstep::state {

/// The optimizer's arrays, each with all elements of the flat range, in memory of one process.
using WholeArrays = std::vector<std::vector<float>>;

class SharedState {
 public:
  /// Writes buffer 0, all of whose bytes are zero, and returns the step whose state that is: 0 in a new job.
  using Fill = std::function<std::uint64_t(SharedState& fresh)>;

  /// Collective. Local rank 0 makes the region and calls fill(*this); what it has filled in is committed as the step
  /// that it returns. Where the segment holds the state of an earlier generation with the same fingerprint, it is taken
  /// over as it is, with the number of buffers that it has, by whatever number of ranks: the job goes on from its
  /// committed step.
  /// Where a program trains several models on one group, each has its state in a region of its own, which is found
  /// again by the model's `name`. UsageError when memory is short, when this generation has a state of that name
  /// already, or for more than base::kRegions models. Error when an earlier generation's state has another layout.
  SharedState(base::Node& node, Layout layout, const Fill& fill, const std::string& name = "");

  const Layout& layout() const { return layout_; }
  /// Which of the segment's regions it is.
  int region() const { return region_; }
  /// Whether it is the state of an earlier generation.
  bool taken_over() const { return taken_over_; }
  /// Whether it has been the state of one of several nodes, in this attempt or in an earlier one.
  bool was_spread() const { return words_.spread.load() != 0; }
  /// The committed step and buffer; or the step that this state is ahead by, see commit_together().
  base::Commit committed() const;
  /// Whether that is so: others that commit with this state have still to make the step.
  bool is_ahead() const;
  /// UsageError naming `what` when it is.
  void check_settled(const char* what) const;

  /// Chooses the buffer that `step` writes, or that modify() writes for the committed step again: any that is neither
  /// committed nor pinned, with one buffer that one. Local rank 0 calls it before its ranks may write, so before it
  /// arrives at a barrier. While all others are pinned it waits, as long as for a peer. GroupAborted.
  void choose_target(std::uint64_t step);
  /// The buffer chosen for `step`, behind that barrier: never the committed one, where there are several. GroupAborted
  /// when the next generation has begun; Error when the buffer was chosen for another step, for ranks that disagree
  /// about what they do would write to the committed one.
  int target(std::uint64_t step) const;

  /// An address in the read-only mapping, `offset` from the layout.
  const std::byte* read(std::size_t offset) const { return readable_->data() + offset; }
  /// The same address in the writable mapping.
  std::byte* write(std::size_t offset) const { return writable_.data() + offset; }
  template <class T>
  const T* read_as(std::size_t offset) const {
    return reinterpret_cast<const T*>(read(offset));
  }
  template <class T>
  T* write_as(std::size_t offset) const {
    return reinterpret_cast<T*>(write(offset));
  }

  /// The read-only mapping, for what may outlive this object.
  std::shared_ptr<const void> memory() const { return readable_; }

  /// Which frozen area belongs to state buffer `buffer`.
  int frozen_area(int buffer) const { return int(*read_as<std::uint64_t>(layout_.frozen_number(buffer))); }
  void set_frozen_area(int buffer, int area) const {
    *write_as<std::uint64_t>(layout_.frozen_number(buffer)) = std::uint64_t(area);
  }

  /// Votes that this rank's part of `step` is written to its target, and returns when the step
  /// is committed. The commit is made by whoever sees all votes, this rank's peers and the
  /// agent included; a death after the last vote rolls forward. GroupAborted when a peer
  /// fails before it votes: the committed state is then still step - 1.
  /// Of states that commit together, only the last of them waits for the commit; the others are ahead from when all
  /// ranks have voted for them until then.
  void vote(std::uint64_t step);

  /// Commits the target that was chosen for the step that is committed already (see Engine::modify). Called by one
  /// rank, between two barriers. As target(): GroupAborted, Error.
  void recommit();

  /// How many attempts of the job have gone on from it while this node was there: of nodes that meet, who has fewer has
  /// sat out since.
  std::uint64_t attempts() const { return words_.attempts.load(); }
  /// What its share of the optimizer's state has in common with those that it belongs to; 0: it is all here.
  std::uint64_t set() const { return words_.set.load(); }
  /// A state that several nodes make together is one only when they have agreed on it: until local rank 0 says so, it
  /// is found by no later generation. `attempts`: with this one.
  void publish(std::uint64_t attempts, std::uint64_t set = 0) {
    words_.attempts.store(attempts);
    words_.set.store(set);
    words_.shares.store(layout_.options().shares);
    words_.share.store(layout_.options().share);
    words_.copied.store(layout_.options().copied ? 1 : 0);
    words_.fingerprint.store(layout_.fingerprint(), std::memory_order_release);
  }

  /// Where a Fill puts the optimizer's state when there is room for a share of it only; whoever publishes the state
  /// takes from there what belongs to whom.
  WholeArrays& whole_arrays() { return whole_; }

  /// Makes another buffer the committed one, whose step is `commit.step`. Called by one rank, between two barriers.
  /// GroupAborted when the next generation has begun.
  void set_committed(const base::Commit& commit);

  /// Holds the committed state while training goes on (state/pin.h).
  Pin pin() const { return Pin(node_.segment, region_); }
  /// Whether anybody holds a state of this generation, be it another model's: who saves that is cut as well by what
  /// ends the program.
  bool is_held() const;

  /// From now on a step of these states of one node is committed when all ranks have voted for it in each of them:
  /// whoever dies leaves all of them at the same step. Each makes every step, in the same order on all ranks.
  /// Collective; between steps. UsageError when they are at different steps, or one is named twice.
  static void commit_together(std::span<SharedState* const> states);

  /// XXH3-128 over all of a state buffer (weights, optimizer, module buffers, record, named bytes) and its frozen area.
  std::string buffer_hash(int buffer) const;
  /// The same of what is the same on all nodes, see Layout::common().
  std::string common_hash(int buffer) const;

 private:
  base::Mark target_word(std::uint64_t step) const;
  bool waits_for_others(std::uint64_t step) const;

  base::Node& node_;
  const std::string name_;
  const int region_;
  bool taken_over_ = false;
  base::RegionWords& words_;
  Layout layout_;
  std::shared_ptr<const base::Mapping> readable_;
  base::Mapping writable_;
  base::Commit ahead_;  ///< the last step that this state was ahead by
  WholeArrays whole_;
};

/// What a segment has of the state that an earlier generation has left of a model.
struct HeldState {
  bool is_there = false;
  std::uint64_t set = 0;  ///< see SharedState::set()
  std::uint64_t attempts = 0;
  int shares = 1, share = 0;  ///< of the optimizer's state (LayoutOptions::shares)
  bool copied = false;
};
HeldState held_in(const base::Segment& segment, const std::string& name);

/// From now on there is none, as if none had ever been filled. Called by one rank, while nobody uses it.
void forget(const base::Segment& segment, const std::string& name);

/// Whether the segment holds a committed state of the model of that name, of whatever generation.
bool is_committed_in(const base::Segment& segment, const std::string& name);

/// The buffers beside the committed one that tell of `step`: it was made there, or edited. What was never written tells
/// of step 0.
std::vector<int> other_buffers_of(const SharedState& state, std::uint64_t step);

/// A frozen area that belongs to no state buffer but, at most, `buffer`: the one to write for it.
int spare_frozen_area(const SharedState& state, int buffer);

}  // namespace lockstep::state
