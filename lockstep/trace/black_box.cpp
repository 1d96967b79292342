#include "lockstep/trace/black_box.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>

#include "lockstep/base/file_size_signal.h"
#include "lockstep/base/futex.h"
#include "lockstep/base/message.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/room.h"
#include "lockstep/trace/trace_file.h"

namespace lockstep::trace {
namespace {

using namespace std::chrono_literals;

// Somebody who dies on the way to the futex wakes nobody.
constexpr auto kSlice = 500ms;

// Whose file the signal is for.
std::atomic<BlackBox*> the_box{nullptr};
static_assert(std::atomic<BlackBox*>::is_always_lock_free);

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

// What wall clock and steady clock say at the same time.
struct Clocks {
  std::int64_t wall =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  std::int64_t steady = steady_now();
  std::int64_t wall_of(std::int64_t steady_time) const { return wall + (steady_time - steady) / 1000; }
};

TracedCall traced(const KeptCall& kept, const Clocks& clocks) {
  TracedCall traced = told_call(kept.call);
  traced.group = int(kept.call.group);
  traced.begin = clocks.wall_of(kept.begin);
  traced.end = kept.end == 0 ? 0 : clocks.wall_of(kept.end);
  return traced;
}

}  // namespace

BlackBox::BlackBox(BoxSettings settings, const base::Node& node)
    : settings_(std::move(settings)),
      segment_(base::Segment::open(node.segment.path(), node.member.size())),
      generation_(node.member.generation()),
      recorder_(settings_.capacity) {
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  watcher_ = std::make_unique<std::thread>([this] { watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  handle_end_signal();
}

// Only where nobody else has a use for it. Of ranks that are threads of one process the first has it.
void BlackBox::handle_end_signal() {
  struct sigaction now {};
  BlackBox* nobody = nullptr;
  if (sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  if (!the_box.compare_exchange_strong(nobody, this)) return;
  now.sa_handler = on_end_signal;
  now.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &now, nullptr);
}

// Between this thread and the watcher, the one that comes last ends the process. A forked child has no watcher.
void BlackBox::on_end_signal(int signal) {
  const int error = errno;
  BlackBox* const box = the_box.load();
  if (box != nullptr && box->process_ == getpid()) box->asked_ = true;
  if (box == nullptr || box->process_ != getpid() || box->ended_) {
    ::signal(signal, SIG_DFL);
    raise(signal);
  } else {
    base::futex_wake(box->page().abort);
  }
  errno = error;
}

BlackBox::~BlackBox() {
  if (process_ != base::process_id()) {  // a forked child has no such thread, whose object may not be touched
    (void)watcher_.release();
    return;
  }
  stopped_ = true;
  while (!ended_) {  // it may have been about to sleep
    base::futex_wake(page().abort);
    std::this_thread::sleep_for(1ms);
  }
  watcher_->join();
  BlackBox* self = this;
  if (!the_box.compare_exchange_strong(self, nullptr)) return;
  struct sigaction now {};
  if (sigaction(SIGTERM, nullptr, &now) == 0 && now.sa_handler == on_end_signal) ::signal(SIGTERM, SIG_DFL);
}

void BlackBox::watch() {
  while (!stopped_ && !asked_ && !has_failed()) base::futex_wait(page().abort, page().abort.load(), kSlice);
  if (!stopped_) write(asked_);
  ended_ = true;
  if (!asked_) return;
  ::signal(SIGTERM, SIG_DFL);
  kill(getpid(), SIGTERM);  // this thread has it blocked
}

std::uint32_t BlackBox::add_group(const std::string& name, const std::vector<int>& ranks) {
  const std::lock_guard lock(groups_mutex_);
  groups_.push_back({.name = name, .ranks = ranks});
  return std::uint32_t(groups_.size() - 1);
}

const char* BlackBox::phase() const {
  return base::to_string(base::Phase(words().phase.load(std::memory_order_relaxed))).data();
}

bool BlackBox::has_failed() const { return is_over() && !base::makes_room(base::read_failure(page(), generation_)); }

// As the world calls the ranks, not the node's page.
Failure BlackBox::failure() const {
  Failure failure = base::read_failure(page(), generation_);
  if (failure.rank >= 0) failure.rank += settings_.first_rank;
  if (failure.rank <= kOnAnotherNode) failure.rank = kOnAnotherNode - failure.rank;
  return failure;
}

RankTrace BlackBox::trace() {
  const Clocks now;
  RankTrace trace{.run = settings_.run,
                  .attempt = settings_.attempt,
                  .rank = settings_.rank,
                  .world = settings_.world,
                  .host = host_name(),
                  .pid = process_,
                  .time = now.wall,
                  .step = step(),
                  .phase = phase(),
                  .failure = is_over() ? std::optional(failure()) : std::nullopt,
                  .begun = recorder_.begun()};
  const std::vector<KeptCall> calls = recorder_.calls();
  {
    const std::lock_guard lock(groups_mutex_);  // behind the calls: their groups are there
    trace.groups = groups_;
  }
  for (const KeptCall& kept : calls) trace.calls.push_back(traced(kept, now));
  return trace;
}

void BlackBox::write_if_over() noexcept { write(false); }

void BlackBox::write(bool is_asked) noexcept try {
  if (process_ != base::process_id() || !(is_asked || has_failed())) return;
  const std::lock_guard lock(file_mutex_);
  if (std::exchange(written_, true)) return;
  const base::WithoutFileSizeSignal quiet;
  try {
    write_trace(settings_.folder, trace());
  } catch (const std::exception& error) {
    base::Outlet::console(STDERR_FILENO)
        .offer("lockstep: rank " + std::to_string(settings_.rank) + " leaves no trace: " + base::line_of(error.what()) +
               "\n");
  }
} catch (const std::exception&) {
  return;  // out of memory: nothing here may hide the failure itself
}

}  // namespace lockstep::trace
