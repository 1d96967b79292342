#include "lockstep/base/member.h"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/calling.h"
#include "lockstep/base/cores.h"
#include "lockstep/base/futex.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/stack_on_request.h"
#include "lockstep/base/text.h"

namespace lockstep::base {
namespace {

using Clock = std::chrono::steady_clock;

// Each slice of sleep ends with a look at the deadline and at the peers.
constexpr std::chrono::milliseconds kSlice{10};

// The first looks come one after another: a pause may cost as much as a meeting takes.
constexpr int kLooks = 200;

// Between two looks at the clock.
constexpr int kLooksPerTime = 16;

UniqueFd open_pid(int pid) { return UniqueFd(int(syscall(SYS_pidfd_open, pid, 0))); }

}  // namespace

Member::Member(ControlPage& page, int rank, std::chrono::milliseconds timeout, std::uint32_t generation, Whole whole)
    : page_(page),
      rank_(rank),
      generation_(generation),
      size_(page.local_world),
      timeout_(timeout),
      whole_(std::move(whole)),
      abroad_(whole_.abroad),
      crowded_(size_ > 1) {  // as long as nothing is known of the others
  check_abort();             // the next generation may have begun since this one was looked up
  RankWords& mine = words();
  // Before any other word is touched: a second process with this rank would mix up the first one's.
  if (!advance(mine.seat, make_mark(generation_, Seat::taken))) {
    check_abort();
    throw UsageError("rank " + std::to_string(rank_) +
                     " has joined already; a process joins once, and no two have the same rank");
  }
  mine.pid.store(process_, std::memory_order_relaxed);
  mine.step.store(0, std::memory_order_relaxed);
  mine.away.store(0, std::memory_order_relaxed);
  mine.answers.store(writes_stack_when_asked() ? 1 : 0, std::memory_order_relaxed);
  set_phase(Phase::outside);
  advance(mine.seat, make_mark(generation_, Seat::joined));
  wake_all(page_);

  auto missing = [&](int peer) { return !has_joined(page_.ranks[peer], generation_); };
  wait(
      [&] {
        for (int peer = 0; peer < size(); ++peer)
          if (missing(peer)) return false;
        return true;
      },
      missing);

  // A launcher may have bound each rank to a core of its own: what all have together counts.
  std::vector<int> processes;
  for (int peer = 0; peer < size(); ++peer) {
    const int pid = page_.ranks[peer].pid.load(std::memory_order_relaxed);
    processes.push_back(pid == process_ ? 0 : pid);
  }
  crowded_ = size() > usable_cores(processes);

  peer_pids_.resize(std::size_t(size()));
  for (int peer = 0; peer < size(); ++peer) {
    const int pid = page_.ranks[peer].pid.load(std::memory_order_relaxed);
    if (pid == process_) continue;
    peer_pids_[std::size_t(peer)] = open_pid(pid);
    // A peer that is dead and reaped already leaves no pidfd; barrier() below would wait
    // for nothing.
    if (!peer_pids_[std::size_t(peer)] && errno == ESRCH) {
      raise({.rank = peer, .cause = "its process ended while the group was forming"});
      throw_aborted();
    }
  }
}

Member::~Member() {
  if (!is_this_process()) return;
  advance(words().seat, make_mark(generation_, Seat::left));
  wake_all(page_);
}

bool Member::spin(ReadyRef ready) const {
  if (crowded_) return yield(ready);
  for (int i = 0; i < kLooks; ++i)
    if (ready()) return true;
  const Clock::time_point end = Clock::now() + waiting_.look;
  do {
    for (int i = 0; i < kLooksPerTime; ++i) {
      if (ready()) return true;
      __builtin_ia32_pause();
    }
  } while (Clock::now() < end);
  return yield(ready);
}

bool Member::yield(ReadyRef ready) const {
  const Clock::time_point end = Clock::now() + waiting_.yield;
  do {
    if (ready()) return true;
    sched_yield();
  } while (Clock::now() < end);
  return ready();
}

// Steps are told at the page of the whole alone. In a call of the part the phase is the part's.
Member::Whereabouts Member::whereabouts(int rank) const {
  const RankWords& here = page_.ranks[rank];
  const Phase phase = Phase(here.phase.load(std::memory_order_relaxed));
  if (whole_.page != nullptr) {
    const RankWords& outer = whole_.page->ranks[seat_of(rank)];
    const std::uint64_t step = outer.step.load(std::memory_order_relaxed);
    if (step != 0)
      return {step, phase == Phase::collective ? phase : Phase(outer.phase.load(std::memory_order_relaxed))};
  }
  return {here.step.load(std::memory_order_relaxed), phase};
}

std::string Member::place_of(int rank) const {
  const Whereabouts theirs = whereabouts(rank);
  return "step " + std::to_string(theirs.step) + ", " + std::string(to_string(theirs.phase));
}

std::string Member::late_ranks(OwedCall owed, void* owed_object) const {
  std::string late;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_ || !owed(owed_object, peer)) continue;
    late += (late.empty() ? "rank " : ", rank ") + shown(peer) + " (" + place_of(peer) + ")";
  }
  return late;
}

std::string Member::arrived_ranks(OwedCall owed, void* owed_object) const {
  std::vector<int> arrived;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_ && !owed(owed_object, peer)) arrived.push_back(name_of(peer));
  return runs_text(arrived);
}

std::vector<int> Member::late_names(OwedCall owed, void* owed_object) const {
  std::vector<int> names;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_ && owed(owed_object, peer)) names.push_back(name_of(peer));
  return names;
}

// Ranks that are threads of one process have none of these descriptors of one another.
bool Member::ask_where(int rank) const {
  if (peer_pids_.empty() || !peer_pids_[std::size_t(rank)]) return false;
  if (page_.ranks[rank].answers.load(std::memory_order_relaxed) == 0) return false;
  ask_for_stack(peer_pids_[std::size_t(rank)].get());
  return true;
}

// One voice is enough for what all come to: that of the lowest rank that has arrived.
void Member::tell_stall(OwedCall owed, void* owed_object, const char* awaited) const {
  for (int peer = 0; peer < rank_ && !doing_.alone; ++peer)
    if (!owed(owed_object, peer)) return;
  const std::string late = late_ranks(owed, owed_object);
  const std::string here = doing_.alone || late.empty() ? "" : arrived_ranks(owed, owed_object);
  Outlet::console(STDERR_FILENO)
      .offer("lockstep: rank " + shown(rank_) + " (" + place_of(rank_) + ") has waited " +
             std::to_string(stall_warning_.count()) + " ms for " + (late.empty() ? awaited : late) + in_what() +
             Calling::told() + (here.empty() ? "" : "; others that have arrived: " + here) + "\n");
  int asked = 0;
  for (int peer = 0; peer < size() && asked < kMostAsked; ++peer)
    if (peer != rank_ && owed(owed_object, peer) && ask_where(peer)) ++asked;
}

void Member::show_life() const {
  words().looks.fetch_add(1, std::memory_order_relaxed);
  if (whole_.page != nullptr) whole_.page->ranks[seat_of(rank_)].looks.fetch_add(1, std::memory_order_relaxed);
}

// Of those it waits for, the sum; none: none is away. What is away in the whole is away in its parts.
std::optional<std::uint32_t> Member::looks_of_away(OwedCall owed, void* owed_object) const {
  std::optional<std::uint32_t> looks;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_ || !owed(owed_object, peer)) continue;
    const ControlPage& page = whole_.page == nullptr ? page_ : *whole_.page;
    const RankWords &here = page_.ranks[peer], &outer = page.ranks[seat_of(peer)];
    if (here.away.load(std::memory_order_relaxed) == 0 && outer.away.load(std::memory_order_relaxed) == 0) continue;
    looks = looks.value_or(0) + here.looks.load(std::memory_order_relaxed);
    looks = *looks + outer.looks.load(std::memory_order_relaxed);
  }
  return looks;
}

void Member::sleep_until(ReadyRef ready, OwedCall owed, void* owed_object, const char* awaited) {
  const Clock::time_point start = Clock::now();
  RankWords& mine = words();
  bool may_tell = stall_warning_.count() > 0 && stall_warning_ < timeout_;
  std::uint32_t looks = 0;
  Clock::time_point life = start;  // of one that is away, seen last
  for (;;) {
    // The order is what makes a wake-up impossible to miss: first "asleep", then the look,
    // then the sleep on the value read before; a waker stores first and looks at "asleep"
    // afterwards (wake_all).
    const std::uint32_t seen = mine.futex.load(std::memory_order_seq_cst);
    mine.asleep.store(1, std::memory_order_seq_cst);
    const bool is_ready = ready();
    if (!is_ready && !is_aborted(page_, generation_)) futex_wait(mine.futex, seen, kSlice);
    mine.asleep.store(0, std::memory_order_relaxed);
    if (is_ready || ready()) return;
    check_abort_anywhere();
    check_peers(ready, owed, owed_object);
    show_life();
    const Clock::time_point now = Clock::now();
    const auto waited = now - start;
    if (answer_ && waited > kAnswerBehind) answer_([&] { return late_names(owed, owed_object); });
    const std::optional<std::uint32_t> away = looks_of_away(owed, owed_object);
    if (away && std::exchange(looks, *away) != *away) life = now;
    const bool will_be_told = away && now - life < abroad_.grace && waited < 2 * timeout_ + abroad_.grace;
    if (waited > timeout_ && !will_be_told) give_up(owed, owed_object, awaited);
    if (may_tell && waited > stall_warning_) {
      may_tell = false;
      tell_stall(owed, owed_object, awaited);
    }
  }
}

// Where one alone is late it is his failure, and the text says who waited.
void Member::give_up(OwedCall owed, void* owed_object, const char* awaited) {
  int culprit = rank_, culprits = 0;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_ && owed(owed_object, peer)) culprit = ++culprits == 1 ? peer : rank_;
  const std::string late = late_ranks(owed, owed_object);
  const Whereabouts theirs = whereabouts(culprit);
  raise({.rank = culprit,
         .step = theirs.step,
         .phase = std::string(to_string(theirs.phase)),
         .cause = (culprit == rank_ ? "" : "rank " + shown(rank_) + " ") + "waited " +
                  std::to_string(timeout_.count()) + " ms for " + (late.empty() ? awaited : late) + in_what()});
  throw_aborted();
}

void Member::check_peers(ReadyRef ready, OwedCall owed, void* owed_object) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_ || !owed(owed_object, peer)) continue;
    const RankWords& theirs = page_.ranks[peer];
    const bool gone = theirs.seat.load(std::memory_order_seq_cst) == make_mark(generation_, Seat::left);
    if (!gone && !peer_is_dead(peer)) continue;
    if (ready()) return;  // its last words made it true after all
    const Whereabouts last = whereabouts(peer);
    raise({.rank = peer,
           .step = last.step,
           .phase = std::string(to_string(last.phase)),
           .cause = gone ? "left the group while rank " + shown(rank_) + " waited for it"
                         : "its process (pid " + std::to_string(theirs.pid.load(std::memory_order_relaxed)) +
                               ") ended without a word"});
    throw_aborted();
  }
}

bool Member::peer_is_dead(int rank) const {
  if (peer_pids_.empty() || !peer_pids_[std::size_t(rank)]) return false;
  pollfd poll_for_end{.fd = peer_pids_[std::size_t(rank)].get(), .events = POLLIN, .revents = 0};
  return poll(&poll_for_end, 1, 0) == 1;
}

void Member::barrier() {
  check_abort();
  const Mark mark = make_mark(generation_, ++barriers_);
  advance(words().arrived, mark);
  meet([&](int peer) { return !has_reached(page_.ranks[peer].arrived.load(std::memory_order_seq_cst), mark); });
}

bool Member::fail(const std::string& cause, int exit_code) {
  const Whereabouts own = whereabouts(rank_);
  return raise({.rank = rank_,
                .step = own.step,
                .phase = std::string(to_string(own.phase)),
                .cause = cause,
                .exit_code = exit_code});
}

bool Member::raise(Failure failure) {
  if (failure.rank >= 0) failure.rank = seat_of(failure.rank);
  return raise_named(failure);
}

bool Member::raise_named(const Failure& failure) {
  if (!is_this_process()) return false;
  // Of a part and the whole, the whole decides what was first.
  ControlPage* const whole = whole_.page.get();
  const bool first =
      whole == nullptr ? raise_abort(page_, generation_, failure) : raise_abort(*whole, whole_.generation, failure);
  if (whole != nullptr) raise_abort(page_, generation_, read_failure(*whole, whole_.generation));
  if (first) *whole_.first_to_fail = true;
  if (first && whole != nullptr) abroad_.tell(in_world(failure));
  return first;
}

void Member::check_abort() const {
  if (!is_this_process())
    throw UsageError("rank " + std::to_string(rank_) + " is process " + std::to_string(process_) +
                     "; a child that it forked takes no part in the group");
  if (whole_.page != nullptr && is_aborted(*whole_.page, whole_.generation))
    raise_abort(page_, generation_, read_failure(*whole_.page, whole_.generation));
  if (is_aborted(page_, generation_)) throw_aborted();
}

void Member::check_abort_anywhere() const {
  if ((whole_.page != nullptr || listens_) && is_this_process()) abroad_.listen();
  check_abort();
}

// The page counts seats; what is on other nodes has none there.
bool Member::report(const Failure& failure) {
  const int seats = whole_.page == nullptr ? size_ : int(whole_.page->local_world),
            seat = failure.rank - abroad_.first_rank;
  Failure told = failure;
  told.rank = seat >= 0 && seat < seats ? seat : kOnAnotherNode - failure.rank;
  return raise_named(told);
}

// The other way round.
Failure Member::in_world(Failure failure) const {
  if (failure.rank >= 0) failure.rank += abroad_.first_rank;
  if (failure.rank <= kOnAnotherNode) failure.rank = kOnAnotherNode - failure.rank;
  return failure;
}

void Member::throw_aborted() const { throw GroupAborted(in_world(read_failure(page_, generation_))); }

}  // namespace lockstep::base
