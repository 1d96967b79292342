// A worker's store, its agent's desk and the store behind it.

#include "lockstep/launch/nodes/store_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/rendezvous/agent_store.h"
#include "lockstep/rendezvous/local_socket.h"
#include "tests/support/usage_error.h"
#include "tests/support/what_of.h"

namespace lockstep::launch {
namespace {

using rendezvous::AgentStore;
using std::chrono::milliseconds;
using support::what_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = EventLoop::Clock;

constexpr milliseconds kPatience{20'000};

class StoreDeskTest : public ::testing::Test {
 protected:
  StoreDeskTest() {
    desk_ = std::make_unique<StoreDesk>(loop_, StoreDesk::Events{.ask =
                                                                     [this](const rendezvous::StoreAsk& ask) {
                                                                       ++asks_;
                                                                       for (const auto& reply : store_.ask(0, ask))
                                                                         desk_->answer(reply.answer);
                                                                     },
                                                                 .forget =
                                                                     [this](const rendezvous::StoreForget& forget) {
                                                                       ++forgotten_;
                                                                       store_.forget(0, forget.id);
                                                                     }});
    name_ = desk_->name();
  }

  // Workers, each a thread; the agent's loop turns until all have ended.
  void work(const std::vector<std::function<void()>>& workers) {
    std::atomic<std::size_t> ended = 0;
    std::vector<std::thread> threads;
    for (const auto& worker : workers)
      threads.emplace_back([&] {
        worker();
        ++ended;
      });
    while (ended < workers.size()) loop_.turn(Clock::now() + milliseconds(5));
    for (std::thread& thread : threads) thread.join();
  }

  bool waits(const std::function<bool()>& done) { return loop_.run_until(done, Clock::now() + kPatience); }

  base::Outlet console_ = base::Outlet::console(STDERR_FILENO);
  EventLoop loop_{console_};
  rendezvous::Store store_;
  std::unique_ptr<StoreDesk> desk_;
  std::string name_;
  int asks_ = 0, forgotten_ = 0;
};

TEST_F(StoreDeskTest, OneWorkerAndEveryCall) {
  work({[this] {
    AgentStore store(kPatience, name_);
    const std::string bytes("\0\n\xff", 3);
    store.set("a", bytes);
    EXPECT_EQ(store.get("a"), bytes);
    EXPECT_TRUE(store.check({"a"}));
    EXPECT_FALSE(store.check({"a", "b"}));
    EXPECT_EQ(store.add("n", 3), 3);
    EXPECT_EQ(store.append("a", "x"), 4);
    EXPECT_EQ(store.compare_set("c", "", "1"), "1");
    EXPECT_EQ(store.compare_set("c", "2", "3"), "1");
    store.wait({"a", "n", "c"});
    store.multi_set({"d", "e"}, {"4", ""});
    EXPECT_THAT(store.multi_get({"e", "d", "n"}), ElementsAre("", "4", "3"));
    EXPECT_EQ(store.num_keys(), 5);
    EXPECT_TRUE(store.delete_key("a"));
    EXPECT_FALSE(store.delete_key("a"));
    store.barrier("alone", 1);
    store.barrier("alone", 1);
  }});
}

TEST_F(StoreDeskTest, ManyAndLargeOnesAreCutIntoMessages) {
  work({[this] {
    AgentStore store(kPatience, name_);
    std::vector<std::string> keys, values;
    for (int i = 0; i < 40; ++i) {
      keys.push_back(std::string(std::size_t(i), 'k') + std::to_string(i));
      values.push_back(std::string(std::size_t(i * 800), char('a' + i % 26)));
    }
    for (int i = 0; i < 2'500; ++i) {
      keys.push_back("small " + std::to_string(i));
      values.emplace_back();
    }
    store.multi_set(keys, values);
    EXPECT_EQ(store.multi_get(keys), values);
    EXPECT_TRUE(store.check(keys));
    store.wait(keys);
    EXPECT_TRUE(store.multi_get({}).empty());
    store.multi_set({}, {});
    EXPECT_TRUE(store.check({}));
  }});
  EXPECT_LT(asks_, 100);
}

TEST_F(StoreDeskTest, WorkersMeet) {
  constexpr int kWorkers = 4;
  const auto worker = [&](int rank) {
    return [this, rank] {
      AgentStore store(kPatience, name_);
      store.set("rank/" + std::to_string(rank), std::to_string(rank));
      for (int peer = 0; peer < kWorkers; ++peer)
        EXPECT_EQ(store.get("rank/" + std::to_string(peer)), std::to_string(peer));
      for (int round = 0; round < 5; ++round) {
        store.add("round", 1);
        store.barrier("all", kWorkers);
        EXPECT_EQ(store.get("round"), std::to_string((round + 1) * kWorkers));
        store.barrier("all", kWorkers);
      }
      store.barrier("end", kWorkers);
      EXPECT_EQ(store.num_keys(), kWorkers + 1 + 2 * 2) << "of each barrier the count and the last door";
    };
  };
  work({worker(0), worker(1), worker(2), worker(3)});
}

TEST_F(StoreDeskTest, AKeyThatDoesNotComeIsAnErrorAndTheNextCallWorks) {
  work({[this] {
    AgentStore store(kPatience, name_);
    const std::string why = what_of([&] { store.get("nob\ndy", milliseconds(20)); });
    EXPECT_THAT(why, HasSubstr("agent store: 'nob\\ndy' did not come within "));
    EXPECT_THAT(what_of([&] { store.wait({"a", "b"}, milliseconds(1)); }), HasSubstr("one of 2 keys from 'a' on"));
    EXPECT_THAT(what_of([&] { store.barrier("door", 2, milliseconds(1)); }), HasSubstr("'door/round 0' did not come"));
    store.set("nob\ndy", "1");
    EXPECT_EQ(store.get("nob\ndy"), "1");
  }});
  EXPECT_EQ(forgotten_, 3);
}

TEST_F(StoreDeskTest, WhatTheStoreRefusesIsAnErrorAndTheNextCallWorks) {
  work({[this] {
    AgentStore store(kPatience, name_);
    store.set("a", "x");
    EXPECT_THAT(what_of([&] { store.add("a", 1); }),
                HasSubstr("agent store: add: the value of 'a' is no whole number"));
    EXPECT_THAT(testing::usage_error([&] { store.set(std::string(2'000, 'k'), ""); }),
                HasSubstr("a key of 2000 bytes"));
    EXPECT_THAT(testing::usage_error([&] { store.append("a", std::string(40'000, 'v')); }),
                HasSubstr("a value of 40000 bytes"));
    EXPECT_THAT(testing::usage_error([&] { store.multi_set({"a"}, {}); }), HasSubstr("0 values for 1 keys"));
    EXPECT_THAT(testing::usage_error([&] { store.barrier("a", 0); }), HasSubstr("a barrier of 0"));
    EXPECT_EQ(store.get("a"), "x");
  }});
}

TEST_F(StoreDeskTest, WithoutAnAgent) {
  EXPECT_THAT(testing::usage_error([] { AgentStore store(kPatience, ""); }),
              HasSubstr("LOCKSTEP_AGENT_STORE is not set"));
  EXPECT_THAT(what_of([] { AgentStore store(kPatience, "lockstep-nobody"); }),
              HasSubstr("no agent at LOCKSTEP_AGENT_STORE=lockstep-nobody: Connection refused"));
}

TEST_F(StoreDeskTest, TheAttemptEndsWhileAWorkerWaits) {
  std::string why, later;
  std::thread worker([&] {
    AgentStore store(kPatience, name_);
    why = what_of([&] { store.get("never"); });
    later = what_of([&] { store.set("a", ""); });
  });
  EXPECT_TRUE(waits([this] { return asks_ == 1; }));
  desk_.reset();
  worker.join();
  EXPECT_THAT(why, HasSubstr("the agent has closed the connection"));
  EXPECT_THAT(later, HasSubstr("the agent has closed the connection"));
}

TEST_F(StoreDeskTest, AWorkerThatDiesIsForgotten) {
  base::UniqueFd worker = rendezvous::connect_to(name_, rendezvous::Carries::bytes);
  const std::string frame = to_frame(
      rendezvous::StoreAsk{.id = 9, .what = std::int64_t(rendezvous::StoreCall::get), .keys = {"a"}, .values = {}});
  EXPECT_EQ(send(worker.get(), frame.data(), frame.size(), 0), ssize_t(frame.size()));
  EXPECT_TRUE(waits([this] { return asks_ == 1; }));
  worker = {};
  EXPECT_TRUE(waits([this] { return forgotten_ == 1; }));
  EXPECT_EQ(store_.ask(0, {.what = std::int64_t(rendezvous::StoreCall::set), .keys = {"a"}, .values = {""}}).size(),
            1u);
}

// What no AgentStore says: garbage, another message, two asks at a time.
TEST_F(StoreDeskTest, WhoTalksOtherwiseIsClosed) {
  const rendezvous::StoreAsk waits_on{
      .id = 1, .what = std::int64_t(rendezvous::StoreCall::get), .keys = {"never"}, .values = {}};
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n"), to_frame(rendezvous::Join{}), to_frame(waits_on) + to_frame(waits_on),
        std::string("LKr\x05\xff\xff\xff\x7f", 8)}) {
    const base::UniqueFd worker = rendezvous::connect_to(name_, rendezvous::Carries::bytes);
    EXPECT_EQ(send(worker.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
    char byte = 0;
    EXPECT_TRUE(waits([&] { return recv(worker.get(), &byte, 1, MSG_DONTWAIT) == 0; })) << bytes.substr(0, 8);
  }
  EXPECT_EQ(forgotten_, 1);
}

// In a process of its own: 0 where an AgentStore does not take the agent for its user's, and the desk closes the
// connection of one that asks all the same.
int meets_the_desk_as_another_user(const std::string& name) {
  if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) return 1;
  const std::string why = what_of([&] { AgentStore store(kPatience, name); });
  if (why.find("is no agent of this user's") == std::string::npos) return 2;
  const base::UniqueFd desk = rendezvous::connect_to(name, rendezvous::Carries::bytes);
  if (!desk) return 3;
  const std::string ask = to_frame(
      rendezvous::StoreAsk{.id = 1, .what = std::int64_t(rendezvous::StoreCall::set), .keys = {"a"}, .values = {"b"}});
  send(desk.get(), ask.data(), ask.size(), MSG_NOSIGNAL);  // it may be closed already
  pollfd answer{.fd = desk.get(), .events = POLLIN, .revents = 0};
  if (poll(&answer, 1, int(kPatience.count())) != 1) return 4;
  char byte = 0;
  const ssize_t got = recv(desk.get(), &byte, 1, MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno == ECONNRESET) ? 0 : 5;
}

TEST_F(StoreDeskTest, AnotherUserIsNeitherBelievedNorServed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  const pid_t stranger = fork();
  ASSERT_GE(stranger, 0);
  if (stranger == 0) _exit(meets_the_desk_as_another_user(name_));
  int status = -1;
  while (waitpid(stranger, &status, WNOHANG) == 0) loop_.turn(Clock::now() + milliseconds(5));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(asks_, 0);
}

TEST_F(StoreDeskTest, TooManyAreClosedAndThoseWhoLeaveMakeRoom) {
  rlimit descriptors{};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  setrlimit(RLIMIT_NOFILE, &descriptors);
  if (descriptors.rlim_cur < 2 * kMostStoreClients + 100) GTEST_SKIP() << "RLIMIT_NOFILE " << descriptors.rlim_cur;
  std::vector<base::UniqueFd> workers;
  const auto is_closed = [](const base::UniqueFd& fd) {
    char byte = 0;
    return recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0;
  };
  while (workers.size() < kMostStoreClients) {
    workers.push_back(rendezvous::connect_to(name_, rendezvous::Carries::bytes));
    loop_.turn(Clock::now());
  }
  const base::UniqueFd more = rendezvous::connect_to(name_, rendezvous::Carries::bytes);
  EXPECT_TRUE(waits([&] { return is_closed(more); }));
  EXPECT_FALSE(is_closed(workers.back()));
  workers.clear();
  loop_.turn(Clock::now());
  work({[this] { AgentStore(kPatience, name_).set("a", ""); }});
}

}  // namespace
}  // namespace lockstep::launch
