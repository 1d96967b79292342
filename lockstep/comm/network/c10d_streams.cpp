#include "lockstep/comm/network/c10d_streams.h"

#include <ATen/ops/empty.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <ctime>
#include <deque>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"
#include "lockstep/base/process_id.h"
#include "lockstep/comm/network/without_signals.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

// A piece is a message of so many bytes, which begins with how many bytes it stands for and has the first of them; what
// is left of them follows in a second one. So both sides know the length of each, as some backends want them to, and
// what is small goes at once.
constexpr std::size_t kFirstMessage = 256;
constexpr std::size_t kInFirst = kFirstMessage - sizeof(std::uint64_t);
// As much as the wire moves at a time, with what is around it.
constexpr std::size_t kMostInMessages = kInFirst + (std::size_t(256) << 10);
// Deadlines are the wire's. Gloo ends all connections of a rank where a wait has one.
constexpr std::chrono::milliseconds kNoEnd = std::chrono::hours(24 * 365);
// So long the end of a wait may take that was told to end.
constexpr std::chrono::milliseconds kEndTime = 500ms;

// While one lives, a write of this thread to a connection whose other end has gone is an error and no more. Gloo does
// not ask the kernel for that, and SIGPIPE would end the process before anybody is told who has died.
class WithoutBrokenPipes {
 public:
  WithoutBrokenPipes() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&ours_);
    sigaddset(&ours_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &ours_, &before_);
  }
  ~WithoutBrokenPipes() {
    const timespec at_once{};
    if (!was_pending_) sigtimedwait(&ours_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutBrokenPipes(const WithoutBrokenPipes&) = delete;
  WithoutBrokenPipes& operator=(const WithoutBrokenPipes&) = delete;

 private:
  sigset_t ours_{}, before_{};
  bool was_pending_ = false;
};

// The backend, for the streams of a group and those of its parts, which may be used at the same time: calls come one at
// a time, waits as they like.
struct C10dCarrier {
  explicit C10dCarrier(c10::intrusive_ptr<c10d::Backend> backend) : backend(std::move(backend)) {}

  const c10::intrusive_ptr<c10d::Backend> backend;
  std::mutex mutex;           // of its calls, and:
  std::int64_t next_tag = 1;  // the whole group has 0
};

// Messages under way between two ranks in one direction, and the thread that waits for them, in their order.
class C10dWaits {
 public:
  explicit C10dWaits(std::shared_ptr<C10dCarrier> carrier) : state_(std::make_shared<State>()) {
    state_->carrier = std::move(carrier);
  }
  ~C10dWaits() {
    if (process_ != base::process_id()) {  // a forked child, which has none of the threads
      [[maybe_unused]] const auto* lost = thread_.release();
      [[maybe_unused]] const auto* kept = new std::shared_ptr<State>(state_);
    } else if (thread_) {
      end();
    }
  }
  C10dWaits(const C10dWaits&) = delete;
  C10dWaits& operator=(const C10dWaits&) = delete;

  void add(const at::Tensor& bytes, WorkPointer work) {
    {
      const std::lock_guard lock(state_->mutex);
      state_->messages.push_back({bytes, std::move(work)});
    }
    if (!thread_) start();
    state_->changed.notify_all();
  }

  // Whether all are through. Error with the backend's words where one is not and will not be.
  bool are_through() const {
    const std::lock_guard lock(state_->mutex);
    if (!state_->error.empty()) throw Error(state_->error);
    return state_->messages.empty();
  }

 private:
  struct UnderWayInBackend {
    at::Tensor bytes;
    WorkPointer work;  // ends before its bytes
  };
  // The thread's, too, which may have to be left behind.
  struct State {
    std::shared_ptr<C10dCarrier> carrier;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<UnderWayInBackend> messages;
    std::string error;
    bool is_over = false, has_ended = false;
  };

  void start() {
    const WithoutSignals without_signals;
    thread_ = std::make_unique<std::thread>([state = state_] { wait_for_each(*state); });
  }

  static void wait_for_each(State& state) {
    std::unique_lock lock(state.mutex);
    for (;;) {
      state.changed.wait(lock, [&] { return state.is_over || !state.messages.empty(); });
      if (state.is_over) break;
      const UnderWayInBackend message = state.messages.front();
      lock.unlock();
      const std::string error = wait_for_one(*message.work);
      lock.lock();
      if (state.error.empty()) state.error = error;
      state.messages.pop_front();
    }
    state.has_ended = true;
    state.changed.notify_all();
  }

  // Why it is not through; empty: it is.
  static std::string wait_for_one(c10d::Work& work) {
    try {
      return work.wait(kNoEnd) ? "" : "the message was taken back";
    } catch (const std::exception& error) {
      const std::string line = base::line_of(error.what());
      return line.empty() ? "the message failed without a word" : line;
    }
  }

  static bool is_taken_back(c10d::Work& work) {
    try {
      work.abort();
      return true;
    } catch (const std::exception&) {  // it cannot be
      return false;
    }
  }

  void end() {
    std::unique_lock lock(state_->mutex);
    state_->is_over = true;
    bool all = true;
    for (const UnderWayInBackend& message : state_->messages) all = is_taken_back(*message.work) && all;
    lock.unlock();
    state_->changed.notify_all();
    if (!all) abort_backend();
    lock.lock();
    const bool ended = state_->changed.wait_for(lock, kEndTime, [this] { return state_->has_ended; });
    lock.unlock();
    if (ended)
      thread_->join();
    else
      thread_->detach();
  }

  void abort_backend() {
    try {
      state_->carrier->backend->abort();
    } catch (const std::exception&) {  // nor can that; end() does not wait for long
    }
  }

  const std::shared_ptr<State> state_;
  const int process_ = base::process_id();
  std::unique_ptr<std::thread> thread_;
};

// One direction with one peer, and the memory of its piece.
struct C10dWay {
  explicit C10dWay(const std::shared_ptr<C10dCarrier>& carrier) : waits(carrier) {}

  std::uint8_t* room() {
    if (!bytes.defined()) bytes = at::empty({std::int64_t(sizeof(std::uint64_t) + kMostInMessages)}, at::kByte);
    return bytes.mutable_data_ptr<std::uint8_t>();
  }

  at::Tensor bytes;
  C10dWaits waits;
  bool has_begun = false, has_more = false;  // of a piece to receive: which messages of it were asked for,
  std::size_t size = 0, taken = 0;           // and what has come of it
};

class C10dStreams final : public Streams {
 public:
  C10dStreams(std::shared_ptr<C10dCarrier> carrier, const Mesh& mesh, int tag)
      : carrier_(std::move(carrier)), tag_(tag) {
    for (const MeshPeer& peer : mesh.peers) {
      ranks_.push_back(peer.rank);
      out_.push_back(std::make_unique<C10dWay>(carrier_));
      in_.push_back(std::make_unique<C10dWay>(carrier_));
    }
  }

  Moved send(int peer, std::span<const iovec> pieces) override {
    return or_words<Moved>([&] { return Moved{.bytes = send_piece(peer, pieces)}; });
  }
  Moved receive(int peer, std::span<const iovec> pieces) override {
    return or_words<Moved>([&] { return Moved{.bytes = take(peer, pieces)}; });
  }
  Sent sent(int peer) override {
    return or_words<Sent>([&] { return Sent{.done = out_[std::size_t(peer)]->waits.are_through()}; });
  }
  int polled(int) const override { return -1; }
  // Nothing that poll() knows tells of a message. At first it is looked for without a pause, then ever more rarely.
  std::chrono::nanoseconds nap(std::chrono::nanoseconds idle) const override {
    return idle < 50us ? 0ns : std::clamp<std::chrono::nanoseconds>(idle / 8, 10us, 1ms);
  }
  bool end_with_news() const override { return true; }
  std::int64_t offer() const override {
    const std::lock_guard lock(carrier_->mutex);
    return carrier_->next_tag;
  }
  std::unique_ptr<Streams> part(Mesh& mesh, std::int64_t highest) override {
    for (MeshPeer& peer : mesh.peers) peer.data = {};
    {
      const std::lock_guard lock(carrier_->mutex);
      carrier_->next_tag = std::max(carrier_->next_tag, highest + 1);
    }
    return std::make_unique<C10dStreams>(carrier_, mesh, int(highest));
  }

 private:
  template <class Result, class Try>
  static Result or_words(Try&& attempt) {
    Result result;
    try {
      return attempt();
    } catch (const std::exception& error) {
      result.error = base::line_of(error.what());
    }
    if (result.error.empty()) result.error = "the message failed without a word";
    return result;
  }

  // What lies at `begin` of the way's memory, to the peer or from it.
  void post(C10dWay& way, bool is_sent, int peer, std::size_t begin, std::size_t size) {
    std::vector<at::Tensor> message{way.bytes.narrow(0, std::int64_t(begin), std::int64_t(size))};
    const int rank = ranks_[std::size_t(peer)];
    c10d::Backend& backend = *carrier_->backend;
    WorkPointer work;
    {
      const std::lock_guard lock(carrier_->mutex);
      const WithoutBrokenPipes without_broken_pipes;
      work = is_sent ? backend.send(message, rank, tag_) : backend.recv(message, rank, tag_);
    }
    if (!work) throw Error("the backend '" + backend.getBackendName() + "' gave no Work for a message");
    way.waits.add(message[0], std::move(work));
  }

  std::size_t send_piece(int peer, std::span<const iovec> pieces) {
    C10dWay& way = *out_[std::size_t(peer)];
    if (!way.waits.are_through()) return 0;
    std::uint8_t* const room = way.room();
    std::uint64_t size = 0;
    for (const auto& [from, length] : pieces) {
      const std::size_t part = std::min<std::size_t>(length, kMostInMessages - size);
      if (part > 0) std::memcpy(room + sizeof size + size, from, part);
      size += part;
    }
    if (size == 0) return 0;
    std::memcpy(room, &size, sizeof size);
    post(way, /*is_sent=*/true, peer, 0, kFirstMessage);
    if (size > kInFirst) post(way, /*is_sent=*/true, peer, kFirstMessage, size - kInFirst);
    return size;
  }

  // Whether a piece is there, of which something is left.
  bool has_come(C10dWay& way, int peer) {
    if (way.size > 0) return true;
    std::uint8_t* const room = way.room();
    if (!way.has_begun) {
      way.has_begun = true;
      post(way, /*is_sent=*/false, peer, 0, kFirstMessage);
    }
    if (!way.waits.are_through()) return false;
    std::uint64_t size = 0;
    std::memcpy(&size, room, sizeof size);
    if (size == 0 || size > kMostInMessages)
      throw Error("what came is no message of this group: does somebody else use the backend?");
    if (size > kInFirst && !way.has_more) {
      way.has_more = true;
      post(way, /*is_sent=*/false, peer, kFirstMessage, size - kInFirst);
      return false;
    }
    way.size = size;
    way.taken = 0;
    way.has_begun = way.has_more = false;
    return true;
  }

  // The next piece is asked for when the wire wants something of it: nothing waits in a backend that nobody waits for.
  std::size_t take(int peer, std::span<const iovec> pieces) {
    C10dWay& way = *in_[std::size_t(peer)];
    if (!has_come(way, peer)) return 0;
    const std::uint8_t* const bytes = way.room() + sizeof(std::uint64_t);
    std::size_t moved = 0;
    for (const auto& [to, length] : pieces) {
      const std::size_t part = std::min<std::size_t>(length, way.size - way.taken);
      if (part > 0) std::memcpy(to, bytes + way.taken, part);
      way.taken += part;
      moved += part;
    }
    if (way.taken == way.size) way.size = 0;
    return moved;
  }

  const std::shared_ptr<C10dCarrier> carrier_;
  const int tag_;
  std::vector<int> ranks_;                          // in the backend, by rank
  std::vector<std::unique_ptr<C10dWay>> out_, in_;  // by rank
};

}  // namespace

std::unique_ptr<Streams> c10d_streams(c10::intrusive_ptr<c10d::Backend> backend, Mesh& mesh) {
  for (MeshPeer& peer : mesh.peers) peer.data = {};
  return std::make_unique<C10dStreams>(std::make_shared<C10dCarrier>(std::move(backend)), mesh, 0);
}

}  // namespace lockstep::comm
