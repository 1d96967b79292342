// Streams over a backend of torch.distributed, of which there is a stand-in within this process.

#include "lockstep/comm/network/c10d_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// What is under way between the stand-ins of all ranks: by sender, receiver and tag.
struct Post {
  using Key = std::tuple<int, int, int>;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<Key, std::deque<at::Tensor>> letters;
  bool aborted = false;
  bool has_no_reader = false;
  bool lost_memory = false;             // before what may read and write it
  std::atomic<bool> has_ended = false;  // a stand-in
  std::string broken;

  void change(const std::function<void()>& how) {
    const std::lock_guard lock(mutex);
    how();
    changed.notify_all();
  }
};

class Posted final : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
};

// Knows of its memory as Gloo does, by the address alone.
class Expected final : public c10d::Work {
 public:
  Expected(std::shared_ptr<Post> post, Post::Key key, const at::Tensor& into)
      : post_(std::move(post)),
        key_(std::move(key)),
        into_(into.mutable_data_ptr<std::uint8_t>()),
        size_(into.numel()),
        memory_(into.storage().getWeakStorageImpl()) {}
  ~Expected() override {
    if (memory_.expired()) post_->change([&] { post_->lost_memory = true; });
  }

  bool wait(std::chrono::milliseconds) override {
    std::unique_lock lock(post_->mutex);
    std::deque<at::Tensor>& letters = post_->letters[key_];
    post_->changed.wait(lock, [&] { return post_->aborted || !post_->broken.empty() || !letters.empty(); });
    if (!post_->broken.empty()) throw std::runtime_error(post_->broken);
    if (letters.empty()) return false;
    if (letters.front().numel() != size_) throw std::runtime_error("a message of another length");
    std::memcpy(into_, letters.front().const_data_ptr<std::uint8_t>(), std::size_t(size_));
    letters.pop_front();
    return true;
  }

 private:
  const std::shared_ptr<Post> post_;
  const Post::Key key_;
  std::uint8_t* const into_;
  const std::int64_t size_;
  const c10::weak_intrusive_ptr<c10::StorageImpl> memory_;
};

class StandIn final : public c10d::Backend {
 public:
  StandIn(std::shared_ptr<Post> post, int rank, bool aborts)
      : c10d::Backend(rank, 2), post_(std::move(post)), aborts_(aborts) {}
  ~StandIn() override { post_->has_ended = true; }

  const std::string getBackendName() const override { return "stand-in"; }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    if (post_->has_no_reader) {  // as write() answers
      raise(SIGPIPE);
      throw std::runtime_error("broken pipe");
    }
    post_->change([&] { post_->letters[{getRank(), to, tag}].push_back(tensors.at(0).clone()); });
    return c10::make_intrusive<Posted>();
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    return c10::make_intrusive<Expected>(post_, Post::Key(from, getRank(), tag), tensors.at(0));
  }
  void abort() override {
    if (aborts_) post_->change([&] { post_->aborted = true; });
  }

 private:
  const std::shared_ptr<Post> post_;
  const bool aborts_;
};

Mesh mesh_of_two() {
  Mesh mesh;
  mesh.peers.resize(2);
  mesh.peers[1].rank = 1;
  return mesh;
}

std::unique_ptr<Streams> streams_of(int rank, const std::shared_ptr<Post>& post, bool aborts = true) {
  Mesh mesh = mesh_of_two();
  return c10d_streams(c10::make_intrusive<StandIn>(post, rank, aborts), mesh);
}

using Bytes = std::vector<std::byte>;

Bytes some_bytes(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = std::byte(i * 7 % 251);
  return bytes;
}

// From rank 0 to rank 1, taken in small pieces; as many as have come within a time that is long enough.
Bytes moved_through(Streams& zero, Streams& one, Bytes bytes) {
  Bytes came(bytes.size());
  std::size_t sent = 0, got = 0;
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (got < bytes.size() && std::chrono::steady_clock::now() < end) {
    const iovec rest{.iov_base = bytes.data() + sent, .iov_len = bytes.size() - sent};
    const Moved out = sent < bytes.size() ? zero.send(1, {&rest, 1}) : Moved();
    const iovec room{.iov_base = came.data() + got, .iov_len = std::min<std::size_t>(60'000, bytes.size() - got)};
    const Moved in = one.receive(0, {&room, 1});
    EXPECT_EQ(out.error + in.error, "");
    sent += out.bytes;
    got += in.bytes;
  }
  came.resize(got);
  return came;
}

// What receive() says when it says anything.
std::string end_of_way(Streams& streams, int peer) {
  std::byte byte{};
  const iovec room{.iov_base = &byte, .iov_len = 1};
  for (int i = 0; i < 20'000; ++i) {
    const Moved moved = streams.receive(peer, {&room, 1});
    if (!moved.error.empty() || moved.bytes > 0) return moved.error;
    std::this_thread::sleep_for(1ms);
  }
  return "nothing";
}

TEST(C10dStreams, WhatIsSmallAndWhatIsNotComesAsItWas) {
  const auto post = std::make_shared<Post>();
  const auto zero = streams_of(0, post), one = streams_of(1, post);
  for (const std::size_t size : {1, 247, 248, 249, 70'001, 1'000'003}) {
    const Bytes bytes = some_bytes(size);
    ASSERT_TRUE(moved_through(*zero, *one, bytes) == bytes) << size;
  }
  EXPECT_TRUE(zero->sent(1).done);
}

TEST(C10dStreams, GroupsOfSomeRanksHaveATagOfTheirOwn) {
  const auto post = std::make_shared<Post>();
  const auto zero = streams_of(0, post), one = streams_of(1, post);
  Mesh mesh = mesh_of_two(), other = mesh_of_two();
  const std::int64_t tag = std::max(zero->offer(), one->offer());
  const auto part_of_zero = zero->part(mesh, tag), part_of_one = one->part(other, tag);
  EXPECT_GT(zero->offer(), tag);
  Bytes of_whole = some_bytes(3), of_part = some_bytes(5);
  const iovec first{.iov_base = of_whole.data(), .iov_len = of_whole.size()};
  EXPECT_EQ(zero->send(1, {&first, 1}).bytes, 3u);
  EXPECT_TRUE(moved_through(*part_of_zero, *part_of_one, of_part) == of_part) << "of the whole something waits";
}

TEST(C10dStreams, WhatTheBackendSaysOfAMessageEndsTheWay) {
  const auto post = std::make_shared<Post>();
  const auto one = streams_of(1, post);
  post->change([&] { post->broken = "the cable is cut"; });
  EXPECT_EQ(end_of_way(*one, 0), "the cable is cut");
}

// Which write() tells by a signal, too, that ends a process.
TEST(C10dStreams, AConnectionThatNobodyReadsIsAnErrorOfTheWay) {
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  const auto post = std::make_shared<Post>();
  const auto zero = streams_of(0, post);
  post->has_no_reader = true;
  std::byte byte{};
  const iovec one{.iov_base = &byte, .iov_len = 1};
  EXPECT_EQ(zero->send(1, {&one, 1}).error, "broken pipe");
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0) << "it waits for its time";
  std::signal(SIGPIPE, before);
}

TEST(C10dStreams, SomebodyElsesMessageIsNone) {
  const auto post = std::make_shared<Post>();
  const auto one = streams_of(1, post);
  post->change([&] { post->letters[{0, 1, 0}].push_back(torch::full({256}, 255, torch::kByte)); });
  EXPECT_THAT(end_of_way(*one, 0), HasSubstr("does somebody else use the backend?"));
}

TEST(C10dStreams, TheEndEndsAWaitByTheBackendWhereItsWorkCannot) {
  const auto post = std::make_shared<Post>();
  auto one = streams_of(1, post);
  std::byte byte{};
  const iovec room{.iov_base = &byte, .iov_len = 1};
  EXPECT_EQ(one->receive(0, {&room, 1}).bytes, 0u);
  one.reset();
  EXPECT_TRUE(post->aborted);
}

// What waits still has all that it needs.
TEST(C10dStreams, TheEndWaitsForNobodyWhoCannotBeEnded) {
  const auto post = std::make_shared<Post>();
  auto one = streams_of(1, post, /*aborts=*/false);
  std::byte byte{};
  const iovec room{.iov_base = &byte, .iov_len = 1};
  EXPECT_EQ(one->receive(0, {&room, 1}).bytes, 0u);
  one.reset();
  EXPECT_FALSE(post->aborted);
  const std::weak_ptr<Post> left = post;
  post->change([&] { post->aborted = true; });
  for (int i = 0; i < 20'000 && left.use_count() > 1; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(left.use_count(), 1) << "the thread that waited has gone, and the backend with it";
  post->change([&] { EXPECT_FALSE(post->lost_memory); });
}

// Its threads are not there: who joins them waits for ever.
TEST(C10dStreams, AForkedChildLeavesTheBackendToItsParent) {
  const auto post = std::make_shared<Post>();
  auto one = streams_of(1, post);
  std::byte byte{};
  const iovec room{.iov_base = &byte, .iov_len = 1};
  EXPECT_EQ(one->receive(0, {&room, 1}).bytes, 0u);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    one.reset();
    _exit(post->has_ended ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(post->has_ended);
}

}  // namespace
}  // namespace lockstep::comm
