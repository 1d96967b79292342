// What ranks read of one another, and of strangers, while a group forms and when it ends.

#include "lockstep/comm/network/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/usage_error.h"

namespace lockstep::comm {
namespace {

using rendezvous::Backend;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Hello hello_from(int rank, int world, int local_rank, int local_world) {
  Hello hello{.rank = rank,
              .world = world,
              .local_rank = local_rank,
              .local_world = local_world,
              .address = rendezvous::parse_address("127.0.0.1:4000").value()};
  put_text(hello.host, "h" + std::to_string(rank));
  return hello;
}

Present present_of(int rank) { return {.rank = rank, .world = 2, .pid = 71, .backend = Backend::nccl}; }

template <class T>
bool is_read(const T& said) {
  std::array<std::byte, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &said, sizeof said);
  return words_in<T>(bytes).has_value();
}

// Whether what was read before is a stranger's when that is changed.
template <class T>
bool is_refused(T said, const std::function<void(T&)>& change) {
  EXPECT_TRUE(is_read(said));
  change(said);
  return !is_read(said);
}

constexpr int kMost = std::numeric_limits<int>::max(), kLeast = std::numeric_limits<int>::min();

TEST(Words, AHelloThatCannotBeIsAStrangers) {
  const std::vector<std::function<void(Hello&)>> changes = {
      [](Hello& hello) { hello.magic = kRollMagic; },
      [](Hello& hello) { hello.rank = -1; },
      [](Hello& hello) { hello.rank = hello.world; },
      [](Hello& hello) { hello.world = kMost; },
      [](Hello& hello) { hello.local_rank = kLeast; },
      [](Hello& hello) { hello.local_rank = hello.local_world = kMost; },
      [](Hello& hello) { hello.local_world = kMost; },
      [](Hello& hello) { hello.address.length = sizeof(sockaddr_storage) + 1; },
      [](Hello& hello) { hello.address.length = sizeof(sa_family_t); },
      [](Hello& hello) { hello.address.bytes.ss_family = AF_UNIX; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i)
    EXPECT_TRUE(is_refused(hello_from(1, 3, 0, 1), changes[i])) << "change " << i;
  Hello six = hello_from(1, 3, 0, 1);
  six.address = rendezvous::parse_address("[::1]:4000").value();
  EXPECT_TRUE(is_read(six));
}

TEST(Words, APresentThatCannotBeIsAStrangers) {
  const std::vector<std::function<void(Present&)>> changes = {
      [](Present& one) { one.magic = kMeshMagic; }, [](Present& one) { one.rank = -1; },
      [](Present& one) { one.world = 0; }, [](Present& one) { one.backend = Backend(-1); },
      [](Present& one) { one.backend = Backend(kMost); }};
  for (std::size_t i = 0; i < changes.size(); ++i) EXPECT_TRUE(is_refused(present_of(1), changes[i])) << "change " << i;
  EXPECT_TRUE(is_read(present_of(2))) << "it is told that it is none of the ranks";
  EXPECT_THAT(contradiction(present_of(2), {present_of(0), {}}), HasSubstr("is none of the ranks 0 to 1"));
}

TEST(Words, NewsAreReadAsTheyWereTold) {
  const Failure failure{.rank = 3, .step = 12, .phase = "update", .cause = "the disk is full", .exit_code = 4};
  EXPECT_EQ(failure_in(news_of(failure)).to_string(), failure.to_string());
  EXPECT_EQ(failure_in(news_of(failure)).exit_code, 4);
  EXPECT_TRUE(is_read(news_of({.rank = -1, .cause = std::string(5'000, 'x')})));
  EXPECT_EQ(failure_in(news_of({.cause = std::string(5'000, 'x')})).cause, std::string(sizeof(News::cause), 'x'));
  const std::vector<std::function<void(News&)>> changes = {
      [](News& news) { news.magic = 0; },      [](News& news) { news.rank = kLeast; },
      [](News& news) { news.rank = kMost; },   [](News& news) { news.kind = NewsKind(4); },
      [](News& news) { news.length = 1'025; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i)
    EXPECT_TRUE(is_refused(news_of(failure), changes[i])) << "change " << i;
}

TEST(Words, AnAnswerSaysForWhomARankWaits) {
  for (const std::vector<int>& awaited : {std::vector<int>{}, {3}, {1, 4095, 7}}) {
    const News answer = answer_of(2, awaited);
    EXPECT_TRUE(is_read(answer));
    EXPECT_EQ(answer.rank, 2);
    EXPECT_EQ(awaited_in(answer), awaited);
  }
  const std::vector<int> first(sizeof(News::cause) / sizeof(int), 5);
  EXPECT_EQ(awaited_in(answer_of(2, std::vector<int>(kMostWorld, 5))), first);
}

// Texts come as they like, without a zero at the end, too.
TEST(Words, NoTextHasPowerOverATerminal) {
  Hello hello = hello_from(1, 3, 0, 1);
  std::memset(hello.host, '\x1b', sizeof hello.host);
  EXPECT_EQ(refusal_of(hello, 2, {}).find('\x1b'), std::string::npos);
  EXPECT_THAT(refusal_of(hello, 2, {}), HasSubstr("\\x1b) was started for 3 ranks, rank 0 for 2"));
  News news = news_of({.rank = 1, .cause = "a\nb"});
  std::memset(news.phase, '\x1b', sizeof news.phase);
  EXPECT_EQ(failure_in(news).to_string().find_first_of("\x1b\n"), std::string::npos);
}

TEST(Words, NodesAreCountedByTheirRanks) {
  EXPECT_THAT(nodes_of({hello_from(0, 3, 0, 2), hello_from(1, 3, 1, 2), hello_from(2, 3, 0, 1)}), ElementsAre(0, 0, 1));
  EXPECT_EQ(testing::usage_error([] {
              nodes_of({hello_from(0, 2, 0, 2), hello_from(1, 2, 0, 1)});
            }),
            "group: rank 0 (h0) is local rank 0 of 2 there; the ranks of a node must follow one another");
  EXPECT_THAT(testing::usage_error([] {
                nodes_of({hello_from(0, 2, 1, 2), hello_from(1, 2, 0, 1)});
              }),
              HasSubstr("rank 0 (h0) is local rank 1 of 2"));
}

}  // namespace
}  // namespace lockstep::comm
