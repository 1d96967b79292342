#include "lockstep/comm/nccl/watchdog.h"

#include <csignal>
#include <utility>

#include "lockstep/base/message.h"
#include "lockstep/comm/checks.h"
#include "lockstep/comm/shm/in_collective.h"

namespace lockstep::comm::nccl {
namespace {

constexpr std::chrono::milliseconds kLook{10};

std::string text_of(const void* queued) {
  const auto& one = *static_cast<const Communicator::Queued*>(queued);
  return one.what + ", number " + std::to_string(one.number) + " by NCCL";
}

}  // namespace

Watchdog::Watchdog(std::shared_ptr<Group> whole, std::shared_ptr<Group> news, std::chrono::milliseconds timeout)
    : whole_(std::move(whole)), news_(std::move(news)), timeout_(timeout) {
  // Nobody wakes this thread, so it has no use for looking and yielding.
  if (base::Node* const node = news_->shared_node())
    node->member.set_waiting({.look = std::chrono::microseconds(0), .yield = std::chrono::microseconds(0)});
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.notify_one();
  thread_.join();
}

std::uint64_t Watchdog::next() {
  ++queued_;
  if (base::Node* const node = news_->shared_node())
    base::advance(node->member.words().votes[0], base::make_mark(node->member.generation(), queued_));
  return queued_;
}

Communicator& Watchdog::add(const Library& library, c10::Device device) {
  const std::lock_guard lock(mutex_);
  auto& made = communicators_[device.index()];
  made = std::make_unique<Communicator>(library, device);
  if (failure_) made->abort();
  return *made;
}

Communicator* Watchdog::find(c10::Device device) {
  const std::lock_guard lock(mutex_);
  const auto found = communicators_.find(device.index());
  return found == communicators_.end() ? nullptr : found->second.get();
}

void Watchdog::end(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = failure;
  for (auto& [index, communicator] : communicators_) communicator->abort();
}

void Watchdog::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw GroupAborted(*failure_);
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kLook, [&] { return stopped_ || failure_; })) {
    lock.unlock();
    try {
      look();
    } catch (const GroupAborted& aborted) {
      end(aborted.failure());
    } catch (const std::exception& error) {
      fail(base::line_of(error.what()));
    }
    lock.lock();
  }
}

// What NCCL has found wrong is thrown.
Communicator* Watchdog::busiest() {
  const std::lock_guard lock(mutex_);
  Communicator* found = nullptr;
  for (auto& [index, communicator] : communicators_) {
    if (const std::string wrong = communicator->error(); !wrong.empty()) throw Error("nccl: " + wrong);
    const auto oldest = communicator->oldest();
    if (oldest && (found == nullptr || oldest->since < found->oldest()->since)) found = communicator.get();
  }
  return found;
}

void Watchdog::look() {
  base::Node* const node = news_->shared_node();
  if (node != nullptr) node->member.check_abort_anywhere();
  Communicator* const busy = busiest();
  const auto oldest = busy == nullptr ? std::nullopt : busy->oldest();
  if (!oldest) return;
  if (node != nullptr) return wait_for(*busy, *oldest, node->member);
  if (Communicator::Clock::now() - oldest->since >= timeout_)
    throw Error("nccl: rank " + std::to_string(news_->rank()) + " waited " + std::to_string(timeout_.count()) +
                " ms for the end of " + text_of(&*oldest));
}

// A rank that has come is owed no more, even when it leaves, unless it has died since.
void Watchdog::wait_for(Communicator& busy, const Communicator::Queued& oldest, base::Member& member) {
  const Described described(member, {.text = text_of, .of = &oldest});
  const base::Mark wanted = base::make_mark(member.generation(), oldest.number);
  const auto is_over = [&] {
    if (const std::lock_guard lock(mutex_); stopped_ || failure_) return true;
    const auto now = busy.oldest();
    return !now || now->number != oldest.number || !busy.error().empty();
  };
  const auto is_owed = [&](int peer) {
    const base::RankWords& theirs = member.page().ranks[peer];
    return !base::has_reached(theirs.votes[0].load(std::memory_order_seq_cst), wanted) ||
           (theirs.seat.load(std::memory_order_seq_cst) == base::make_mark(member.generation(), base::Seat::joined) &&
            kill(theirs.pid.load(std::memory_order_relaxed), 0) != 0);
  };
  const std::string end = "the end of it";
  member.wait(is_over, is_owed, end.c_str());
}

// Another rank may have been first.
void Watchdog::fail(const std::string& cause) {
  whole_->abort(cause);
  try {
    if (base::Node* const node = news_->shared_node()) node->member.check_abort_anywhere();
  } catch (const GroupAborted& aborted) {
    return end(aborted.failure());
  }
  end({.rank = name_in_world(*news_, news_->rank()), .cause = cause});
}

}  // namespace lockstep::comm::nccl
