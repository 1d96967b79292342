#include "lockstep/checkpoint/background_saver.h"

#include <ATen/ops/full.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/agree.h"
#include "lockstep/checkpoint/contents.h"
#include "lockstep/checkpoint/store/folder_lock.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/parallel/share_exchange.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::chrono::milliseconds kLongestTurn{1000};
constexpr std::chrono::milliseconds kShortestTurn{10};

// Much less than the timeout, which the other ranks allow rank 0 for each turn, and than what is told as a stall.
std::chrono::milliseconds turn_of(const base::Member& member) {
  const std::chrono::milliseconds stall = member.stall_warning();
  const auto turn = std::min<std::chrono::milliseconds>(member.timeout() / 4, kLongestTurn);
  return stall.count() > 0 ? std::min(turn, std::max(stall / 2, kShortestTurn)) : turn;
}

// Signals are for the threads that train.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// What saves takes no core from what trains: it runs where one is left over. A thread has a nice value of its own,
// which those that it begins inherit. No system refuses to make a thread wait for others.
void let_others_go_first() { ::setpriority(PRIO_PROCESS, id_t(::gettid()), kNiceOfSaves); }

}  // namespace

// One save. It needs nothing of the engine: what it writes is memory that the pin holds, and its own.
struct BackgroundSaver::Run {
  Run(state::Pin held, state::WholeArrays gathered, Contents what)
      : pin(std::move(held)), arrays(std::move(gathered)), contents(std::move(what)) {}

  void start(const std::string& folder, const Retention& retention, bool awaited) {
    const NoSignals none;  // the thread inherits it
    thread = std::thread([this, &folder, &retention, awaited] {
      if (!awaited) let_others_go_first();
      write(folder, retention);
      pin.reset();
      arrays.clear();
      done.store(true, std::memory_order_release);
    });
  }

  // The folder may have been made anew. Looking may take as long as writing: its disk may stand still.
  void write(const std::string& folder, const Retention& retention) {
    try {
      hold_folder(folder);
      saved = written(folder, contents, retention);
    } catch (const UsageError& error) {
      saved = not_saved(contents.state.step, error);  // told here: there may be no next call
      refused = std::current_exception();
    } catch (const std::exception& error) {  // of the system
      saved = not_saved(contents.state.step, error);
    }
  }

  std::optional<state::Pin> pin;  // until it is written
  state::WholeArrays arrays;      // of which contents has tensors, as of the pinned memory
  Contents contents;
  Saved saved;
  std::exception_ptr refused;  // that another program has the folder
  std::atomic<bool> done{false};
  std::thread thread;
};

BackgroundSaver::BackgroundSaver(std::string folder, parallel::Engine& engine, const Retention& retention, Hold hold)
    : folder_(std::move(folder)), engine_(engine), retention_(retention) {
  engine_.state().make_holdable();
  if (hold != Hold::now || engine_.group().rank() != 0) return;
  hold_or_abort(folder_, engine_.group());
}

BackgroundSaver::~BackgroundSaver() { join(); }

bool BackgroundSaver::save(const SaveOptions& options, bool awaited) {
  const state::SharedState& shared = checked_state(engine_, options);
  comm::Group& group = engine_.group();
  bool begins = !run_ || run_->done.load(std::memory_order_acquire);  // as far as rank 0 knows
  if (begins) wait();
  state::WholeArrays arrays;
  if (shared.layout().options().shares > 1) {
    begins = !comm::broadcast_bytes(group, begins ? "begins" : "").empty();
    if (begins) arrays = parallel::gather_arrays(shared, group);
  }
  if (group.rank() != 0) return true;
  if (!begins) {
    ++skipped_;
    return false;
  }
  try {
    state::Pin pin = shared.pin();
    Contents contents = contents_of(engine_, pin.read(0), options, arrays);
    auto run = std::make_unique<Run>(std::move(pin), std::move(arrays), std::move(contents));
    run->start(folder_, retention_, awaited);
    run_ = std::move(run);
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) {  // of the system, as when it is written
    last_ = not_saved(engine_.steps(), error);
    untold_ = true;
  }
  return true;
}

Saved BackgroundSaver::wait() {
  if (const std::exception_ptr refused = join())
    comm::or_abort(engine_.group(), [&] { std::rethrow_exception(refused); });
  return last_;
}

Saved BackgroundSaver::wait_together() {
  comm::Group& group = engine_.group();
  const std::chrono::milliseconds turn = turn_of(group.node().member);
  for (bool ended = false; !ended;) {
    const at::Tensor here = at::full({1}, std::int64_t(wait_for(turn)), at::kLong);
    group.all_reduce(here, comm::ReduceOp::min);
    ended = here.item<std::int64_t>() == 1;
  }
  return last_;
}

bool BackgroundSaver::wait_for(std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  while (run_ && !run_->done.load(std::memory_order_acquire)) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  wait();
  return true;
}

// Returns why the folder is another program's, where it is.
std::exception_ptr BackgroundSaver::join() {
  if (!run_) return {};
  run_->thread.join();
  last_ = std::move(run_->saved);
  untold_ = true;
  return std::exchange(run_, nullptr)->refused;
}

std::optional<Saved> BackgroundSaver::ended() {
  if (run_ && run_->done.load(std::memory_order_acquire)) wait();
  return std::exchange(untold_, false) ? std::optional(last_) : std::nullopt;
}

}  // namespace lockstep::checkpoint
