#pragma once

// One rank's seat at the control page: how it waits for its peers, and how it fails.
//
// Every wait has a deadline and ends early, with GroupAborted, when a peer has failed,
// died or left, or when the job's next generation has begun without this rank. At the deadline it is the failure of the
// one that is late, or, where several are, of the one that waits. A Member belongs to one
// rank, one process and one thread at a time: a child that the process forks has no part in the group;
// its waits are a UsageError, its failures and its end are nobody's.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/control_page.h"
#include "lockstep/base/error.h"
#include "lockstep/base/process_id.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::base {

inline constexpr std::chrono::milliseconds kDefaultTimeout{300'000};

/// Whoever waits says for whom when it is asked, but not before it has waited for so long: who comes late finds much of
/// what it waits for on its way, and is not to be taken for one that others keep waiting.
inline constexpr std::chrono::milliseconds kAnswerBehind{100};

/// A reference to a callable `bool()`, alive for the length of one call.
class ReadyRef {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, ReadyRef>>>
  ReadyRef(F&& ready)  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(&ready))),
        call_([](void* object) { return bool((*static_cast<std::remove_reference_t<F>*>(object))()); }) {}
  bool operator()() const { return call_(object_); }

 private:
  void* object_;
  bool (*call_)(void*);
};

/// How long a rank waits in other ways before it sleeps.
struct Waiting {
  /// Looking, where each rank has a core: longer than a meeting of ranks that run, shorter than a scheduler's time
  /// slice.
  std::chrono::microseconds look{50};
  /// Then its core is given to whoever wants it, which is often the rank that is waited for; that spares a sleep and a
  /// wake. Beyond it the others compute, and one sleep more does not matter.
  std::chrono::microseconds yield{2000};
};

/// What a rank is doing while it waits, in words that are made when they are needed: text(of).
struct Doing {
  std::string (*text)(const void* of) = nullptr;
  const void* of = nullptr;
  /// Not all ranks come to it: that others do not wait for this one does not mean that they wait with it.
  bool alone = false;
};

/// What ties a node's ranks to those of other nodes; as it is, they are all there are.
struct Abroad {
  int first_rank = 0;  ///< the number in the world of the node's first rank, which failures then name ranks by
  /// Writes down what failures the other nodes have told. Waits for nobody. Any thread.
  std::function<void()> listen = [] {};
  /// Tells them of one. Waits for nobody. Any thread.
  std::function<void(const Failure&)> tell = [](const Failure&) {};
  /// A rank that is away may wait for one of theirs, and tells so when its own time is over. So a wait for it goes on
  /// behind its timeout, as long again at most, until that one has shown no life for so long.
  std::chrono::milliseconds grace{0};
};

/// The group that another one is a part of. A failure of the part is one of the whole, and what fails the whole ends
/// the waits of the part. Failures name ranks as the whole does.
struct Whole {
  std::shared_ptr<ControlPage> page = nullptr;  ///< null: the group is no part of another
  std::uint32_t generation = 0;
  std::vector<int> ranks = {};  ///< by seat of the part, the seats of the whole
  Abroad abroad = {};           ///< of the whole; a part's failures are told there, and its waits listen
  /// Whether this rank was the first to fail, in whichever of its groups.
  std::shared_ptr<std::atomic<bool>> first_to_fail = std::make_shared<std::atomic<bool>>(false);
};

class Member {
 public:
  /// Takes seat `rank` and waits until all ranks of the page's generation have taken theirs.
  Member(ControlPage& page, int rank, std::chrono::milliseconds timeout = kDefaultTimeout)
      : Member(page, rank, timeout, page.generation.load(std::memory_order_acquire)) {}
  /// The same in `generation`; GroupAborted when that is over, or `whole` has failed.
  Member(ControlPage& page, int rank, std::chrono::milliseconds timeout, std::uint32_t generation, Whole whole = {});
  /// Leaves the seat: peers that still wait for this rank get GroupAborted.
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::uint32_t generation() const { return generation_; }
  ControlPage& page() const { return page_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  const Whole& whole() const { return whole_; }
  /// What failures call a rank: its number in the outermost group, over all nodes.
  int name_of(int rank) const { return seat_of(rank) + abroad_.first_rank; }
  /// A rank's seat at the page of the outermost group.
  int seat_of(int rank) const { return whole_.page == nullptr ? rank : whole_.ranks[std::size_t(rank)]; }
  RankWords& words() const { return page_.ranks[rank_]; }
  /// The step that this rank is in, of a part that of the whole; 0: in none.
  std::uint64_t step() const { return whereabouts(rank_).step; }
  /// Where a rank is, in words: "step 7, forward".
  std::string place_of(int rank) const;

  /// Of this rank alone. For measurements: the default is for all machines.
  void set_waiting(Waiting waiting) { waiting_ = waiting; }

  /// A wait that lasts longer than this, in a group that has formed, is told on standard error, once, by the lowest of
  /// the ranks that wait, or by each that waits alone: who is late, where the late ones and this one are, which call
  /// that is (calling.h), and who else has come. The late ones are asked for their stacks then. 0, as at first: none is
  /// told.
  void set_stall_warning(std::chrono::milliseconds after) { stall_warning_ = after; }
  std::chrono::milliseconds stall_warning() const { return stall_warning_; }
  /// Whether groups compare what the ranks call before they touch a byte. Of this rank, and of the parts that are made
  /// of its group later.
  void set_compares_calls(bool compares) { compares_calls_ = compares; }
  bool compares_calls() const { return compares_calls_; }
  /// What this rank calls, for what is said of waits; both pointers outlive the call, and {} follows.
  void set_doing(Doing doing) { doing_ = doing; }
  /// Has a rank of another process write its stack; false where that one has no handler for it. Waits for nobody.
  bool ask_where(int rank) const;

  /// Says to peers (and to whoever finds the body) where this rank is.
  void set_phase(Phase phase) { words().phase.store(std::uint32_t(phase), std::memory_order_relaxed); }
  void set_step(std::uint64_t step) { words().step.store(step, std::memory_order_relaxed); }
  Phase phase() const { return Phase(words().phase.load(std::memory_order_relaxed)); }

  /// Returns when ready() is true. ready() must become true by a store of some peer that
  /// calls wake_all() afterwards; what else makes it true is seen within 10 ms. `waits_for(rank)` tells whether that
  /// peer is still owed: only its death counts, and the time-out message names it, or `awaited` where none is owed.
  /// Throws GroupAborted.
  template <class Owed>
  void wait(ReadyRef ready, Owed&& owed, const char* awaited = "its peers") {
    if (spin(ready)) return;
    sleep_until(
        ready, [](void* f, int rank) { return bool((*static_cast<std::remove_reference_t<Owed>*>(f))(rank)); },
        const_cast<void*>(static_cast<const void*>(&owed)), awaited);
  }

  /// Returns when every rank has called it as often as this one.
  void barrier();

  /// The waiting half of a barrier, for words of the caller's own: call it after a seq_cst store by
  /// which this rank is no longer missing(rank) to its peers; returns when no peer is missing. All
  /// ranks call it for the same words. missing() judges by has_reached(): a peer of a later generation
  /// is missing for ever. Throws GroupAborted.
  template <class Missing>
  void meet(Missing&& missing) {
    const auto ready = [&] {
      for (int peer = 0; peer < size(); ++peer)
        if (peer != rank_ && missing(peer)) return false;
      return true;
    };
    // Only the last to arrive has anybody to wake.
    if (ready()) return wake_all(page_);
    wait(ready, missing);
  }

  /// Writes down the failure (unless one was first), raises the abort word.
  /// Returns true when this failure was the first. Any thread may call it.
  bool fail(const std::string& cause, int exit_code = kExitFailure);

  /// The same for a failure that this rank has heard of over the network: of a rank by its number in the world.
  bool report(const Failure& failure);

  /// In a job of several nodes. Before the group is used.
  void set_abroad(Abroad abroad) { abroad_ = std::move(abroad); }
  const Abroad& abroad() const { return abroad_; }
  /// Whether waits of an outermost group, too, end with a failure that other nodes have told. They do not otherwise: a
  /// node finishes a step of which it has all that the others owe it.
  void set_listening(bool listening) { listens_ = listening; }

  /// That this rank is alive, though it waits elsewhere than at a page: call it there each 10 ms or so.
  void show_life() const;

  /// Called in waits, behind kAnswerBehind each 10 ms or so, for ranks of other nodes whose time for this one is over
  /// and who ask: `awaited` gives the names of those that the wait is for. Waits for nobody.
  using Answer = std::function<void(const std::function<std::vector<int>()>& awaited)>;
  /// Before the group is used. A part has an answer of its own, for its waits say nothing of what the whole does.
  void set_answer(Answer answer) { answer_ = std::move(answer); }

  /// Whether the failure of the group, or of a part of it, was written down by this rank: then it is the one to say so.
  bool first_to_fail() const { return *whole_.first_to_fail; }

  /// Throws GroupAborted when the group has failed, UsageError in a forked child.
  void check_abort() const;
  /// The same in a wait, which may last: a part's, and one that is to, has listened before to what other nodes have
  /// told.
  void check_abort_anywhere() const;

 private:
  using OwedCall = bool (*)(void*, int);
  struct Whereabouts {
    std::uint64_t step = 0;
    Phase phase = Phase::outside;
  };
  Whereabouts whereabouts(int rank) const;
  bool spin(ReadyRef ready) const;
  bool yield(ReadyRef ready) const;
  void sleep_until(ReadyRef ready, OwedCall owed, void* owed_object, const char* awaited);
  bool raise(Failure failure);
  bool raise_named(const Failure& failure);
  [[noreturn]] void give_up(OwedCall owed, void* owed_object, const char* awaited);
  void check_peers(ReadyRef ready, OwedCall owed, void* owed_object);
  bool peer_is_dead(int rank) const;
  bool is_this_process() const { return process_ == process_id(); }
  Failure in_world(Failure failure) const;
  [[noreturn]] void throw_aborted() const;
  std::string late_ranks(OwedCall owed, void* owed_object) const;
  std::string arrived_ranks(OwedCall owed, void* owed_object) const;
  std::vector<int> late_names(OwedCall owed, void* owed_object) const;
  void tell_stall(OwedCall owed, void* owed_object, const char* awaited) const;
  std::optional<std::uint32_t> looks_of_away(OwedCall owed, void* owed_object) const;
  std::string in_what() const { return doing_.text == nullptr ? "" : " in " + doing_.text(doing_.of); }
  std::string shown(int rank) const { return std::to_string(name_of(rank)); }

  ControlPage& page_;
  const int rank_;
  const std::uint32_t generation_;
  const int size_;
  const int process_ = process_id();
  const std::chrono::milliseconds timeout_;
  const Whole whole_;
  Abroad abroad_;
  bool listens_ = false;
  Answer answer_;
  std::uint64_t barriers_ = 0;
  Waiting waiting_;
  std::chrono::milliseconds stall_warning_{0};
  bool compares_calls_ = true;
  Doing doing_;
  bool crowded_ = false;             ///< ranks exceed cores
  std::vector<UniqueFd> peer_pids_;  ///< pidfds; empty entries for self and thread ranks
};

}  // namespace lockstep::base
