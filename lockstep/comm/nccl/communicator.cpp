#include "lockstep/comm/nccl/communicator.h"

#include <c10/core/DeviceGuard.h>

#include <exception>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/device_streams.h"

namespace lockstep::comm::nccl {

Communicator::Communicator(const Library& library, c10::Device device)
    : library_(library), stream_(side_stream(device)) {}

std::string Communicator::words_of(Result result) const {
  const char* const last = library_.table.get_last_error(comm_);
  std::string words = library_.table.get_error_string(result);
  if (last != nullptr && *last != '\0') words += std::string(" (") + last + ")";
  if (words.find("Duplicate GPU") != std::string::npos) words += "; backend 'ipc' is for several ranks on one GPU";
  return words;
}

void Communicator::begin(const std::string& what, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (ended_) throw Ended();
  queue_.push_back({{what, number, Clock::now()}, {}});
}

void Communicator::take(const char* what, const std::function<Result()>& call) {
  for (bool first = true;; first = false) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) throw Ended();
      Result result = Result::in_progress;
      const Result asked = first ? (result = call()) : library_.table.comm_get_async_error(comm_, &result);
      const Result wrong = asked != Result::success && asked != Result::in_progress ? asked : result;
      if (wrong == Result::success) return;
      if (wrong != Result::in_progress) throw Error(std::string("nccl: ") + what + ": " + words_of(wrong));
    }
    std::this_thread::yield();
  }
}

void Communicator::connect(const UniqueId& id, int ranks, int rank, std::uint64_t number) {
  const c10::DeviceGuard here(device());
  begin("the meeting of the ranks", number);
  Config config;
  config.blocking = 0;
  take("the meeting of the ranks",
       [&] { return library_.table.comm_init_rank_config(&comm_, ranks, id, rank, &config); });
  const std::lock_guard lock(mutex_);
  queue_.pop_back();
}

void Communicator::enqueue(const std::string& what, std::uint64_t number, const Call& call) {
  const c10::DeviceGuard here(device());
  const c10::Stream current = current_stream(device());
  follow(stream_, current);
  begin(what, number);
  take(what.c_str(), [&] { return call(library_.table, comm_, stream_.native_handle()); });
  {
    const std::lock_guard lock(mutex_);
    if (ended_) throw Ended();
    queue_.back().end.emplace(stream_.device_type());
    queue_.back().end->record(stream_);
  }
  follow(current, stream_);
}

std::optional<Communicator::Queued> Communicator::oldest() {
  const c10::DeviceGuard here(device());
  const std::lock_guard lock(mutex_);
  while (!queue_.empty() && queue_.front().end && queue_.front().end->query()) queue_.pop_front();
  if (queue_.empty()) return {};
  return queue_.front().queued;
}

std::string Communicator::error() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr || ended_) return "";
  Result result = Result::success;
  if (const Result asked = library_.table.comm_get_async_error(comm_, &result); asked != Result::success)
    result = asked;
  return result == Result::success || result == Result::in_progress ? "" : words_of(result);
}

void Communicator::abort() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(ended_, true) && comm_ != nullptr) library_.table.comm_abort(std::exchange(comm_, nullptr));
}

// A peer may have something of this rank's under way although this one is done.
Communicator::~Communicator() {
  try {
    end();
  } catch (const std::exception&) {  // the device has failed, which whoever waits for it is told
    abort();
  }
}

void Communicator::end() {
  const auto until = Clock::now() + kFarewell;
  while (!ended_ && oldest() && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!ended_ && oldest()) abort();
  if (comm_ == nullptr) return;
  const c10::DeviceGuard here(device());
  Result result = library_.table.comm_finalize(comm_);
  while (result == Result::in_progress && Clock::now() < until) {
    std::this_thread::yield();
    if (library_.table.comm_get_async_error(comm_, &result) != Result::success) break;
  }
  if (result == Result::success)
    library_.table.comm_destroy(comm_);
  else
    library_.table.comm_abort(comm_);
}

}  // namespace lockstep::comm::nccl
