// Ranks that no launcher has told of nodes. They are threads here, on machines that exist by name only.

#include "lockstep/comm/network/roll_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/comm/network/door.h"
#include "lockstep/comm/network/words.h"
#include "lockstep/rendezvous/address_file.h"
#include "lockstep/rendezvous/socket.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/stranger.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using rendezvous::Backend;
using rendezvous::Place;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A rank as it was started, and what has become of it.
struct Rank {
  Place place;
  std::string machine = "one";
  Backend backend = Backend::automatic;
  std::chrono::milliseconds timeout = 20'000ms;
  std::string error{};
  bool wrong_use = false;
};

Place by_tcp(int rank, int world) {
  static const std::string host =
      "127.3." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(1 + getpid() % 250);
  return {.rank = rank,
          .world_size = world,
          .launcher = "hand",
          .master_addr = host,
          .master_port = 29500,
          .nodes_known = false};
}

// All at once.
void call(std::vector<Rank>& ranks) {
  std::vector<std::thread> threads;
  for (Rank& rank : ranks)
    threads.emplace_back([&rank] {
      try {
        rank.place = call_roll(rank.place, rank.backend, rank.timeout, rank.machine);
      } catch (const Error& error) {
        rank.error = error.what();
        rank.wrong_use = dynamic_cast<const UsageError*>(&error) != nullptr;
      }
    });
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::string> errors(const std::vector<Rank>& ranks) {
  std::vector<std::string> all;
  for (const Rank& rank : ranks) all.push_back(rank.error);
  return all;
}

// Not a core that turns until the deadline, which blames those that stand outside.
TEST(Door, SaysSoWhereNoFileDescriptorsAreLeft) {
  struct Word {
    std::uint64_t magic = kMeshMagic;
  };
  const rendezvous::Listening listening = rendezvous::listen_at(rendezvous::resolve("test", "127.0.0.1", 0));
  const base::UniqueFd outside = rendezvous::begin_connect(rendezvous::own_end(listening.fd.get()), {});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const base::UniqueFd next_free(dup(outside.get()));
  rlimit none_left = before;
  none_left.rlim_cur = rlim_t(next_free.get());  // and that one is in use
  Door<Word> door(listening.fd.get());
  const std::function<void()> check = [] {};
  std::string said;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none_left), 0);
  try {
    door.next({.deadline = std::chrono::steady_clock::now() + 5s, .check = check});
  } catch (const Error& error) {
    said = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(said, AllOf(HasSubstr("nobody can be let in"), HasSubstr("files open; raise the limit")));
}

TEST(RollCall, SeatsAreInTheOrderOfRanks) {
  EXPECT_THAT(seats_of({"a", "a", "b"}), ElementsAre(Seat{0, 2, 0}, Seat{1, 2, 0}, Seat{0, 1, 2}));
  EXPECT_THAT(seats_of({"a", "b", "a"}), ElementsAre(Seat{0, 2, 0}, Seat{0, 1, 1}, Seat{1, 2, 0}));
}

TEST(RollCall, NamesTheMachineWithItsNamespaces) {
  EXPECT_EQ(own_machine(), own_machine());
  EXPECT_LT(own_machine().size(), 128u);
}

TEST(RollCall, EachRankFindsItsNode) {
  for (int round = 0; round < 2; ++round) {  // the second finds nothing of the first
    std::vector<Rank> ranks = {{by_tcp(0, 4), "a"}, {by_tcp(1, 4), "a"}, {by_tcp(2, 4), "b"}, {by_tcp(3, 4), "b"}};
    call(ranks);
    ASSERT_THAT(errors(ranks), Each(""));
    for (const Rank& rank : ranks) {
      EXPECT_TRUE(rank.place.nodes_known);
      EXPECT_EQ(rank.place.local_rank, rank.place.rank % 2);
      EXPECT_EQ(rank.place.local_world_size, 2);
      EXPECT_EQ(rank.place.meeting_key, ranks[0].place.meeting_key);
      EXPECT_EQ(rank.place.job_key == ranks[0].place.job_key, rank.machine == "a");
    }
    EXPECT_EQ(ranks[2].place.job_key, ranks[3].place.job_key);
  }
}

TEST(RollCall, AFileTellsWhereRankZeroListens) {
  const lockstep::testing::ScratchFolder folder;
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back({by_tcp(rank, 3)});
    ranks.back().place.master_addr = "";
    ranks.back().place.socket_interface = "lo";
    ranks.back().place.meeting_file = folder.file("meeting");
  }
  call(ranks);
  ASSERT_THAT(errors(ranks), Each(""));
  for (const Rank& rank : ranks) {
    EXPECT_EQ(rank.place.local_world_size, 3);
    EXPECT_EQ(rank.place.master_addr, "127.0.0.1");
    EXPECT_EQ(rank.place.master_port, ranks[0].place.master_port);
  }
  EXPECT_EQ(folder.entries(), 0u);
}

// Rank 0 and the one that is wrong hear it, and so does one that waits.
struct Contradiction {
  const char* name;
  std::function<void(Rank&)> change;  // of the last of three
  std::vector<const char*> says;
};

TEST(RollCall, ContradictionsAreToldToAll) {
  const Contradiction all[] = {
      {"world size",
       [](Rank& rank) { rank.place.world_size = 4; },
       {"rank 2 (process ", "with world_size 4, rank 0 ", " with 3"}},
      {"rank", [](Rank& rank) { rank.place.rank = 1; }, {"two processes are rank 1: "}},
      {"backend",
       [](Rank& rank) { rank.backend = Backend::tcp; },
       {"rank 2 (", "asks for backend 'tcp', rank 0 (", "for 'shm'"}},
      {"node", [](Rank& rank) { rank.machine = "two"; }, {"backend 'shm' is for ranks of one node", "and rank 2 ("}},
  };
  for (const Contradiction& one : all) {
    std::vector<Rank> ranks;
    for (int rank = 0; rank < 3; ++rank) ranks.push_back({by_tcp(rank, 3), "one", Backend::shm, 3'000ms});
    one.change(ranks[2]);
    call(ranks);
    for (const char* part : one.says) {
      EXPECT_THAT(ranks[0].error, HasSubstr(part)) << one.name;
      EXPECT_THAT(ranks[2].error, HasSubstr(part)) << one.name;
    }
    EXPECT_TRUE(ranks[0].wrong_use);
    EXPECT_NE(ranks[1].error, "");
  }
}

TEST(RollCall, RanksThatDoNotComeAreNamedToAll) {
  std::vector<Rank> ranks = {{by_tcp(0, 4), "one", {}, 400ms}, {by_tcp(2, 4), "one", {}, 400ms}};
  call(ranks);
  EXPECT_THAT(errors(ranks), Each(AllOf(HasSubstr("these ranks did not come to tcp://127.3."),
                                        HasSubstr(":29500 within 0.4 s: 1, 3"))));
  EXPECT_FALSE(ranks[0].wrong_use || ranks[1].wrong_use);
}

// Whoever starts ranks by hand ends one, corrects it and starts it again.
TEST(RollCall, ARankThatEndedBeforeAllHadComeMayComeAgain) {
  std::vector<Rank> zero{{by_tcp(0, 3)}}, early{{by_tcp(1, 3), "one", {}, 100ms}};
  std::thread rank_zero([&] { call(zero); });
  call(early);
  EXPECT_THAT(early[0].error, HasSubstr("which did not come within 0.1 s"));
  std::vector<Rank> rest{{by_tcp(1, 3)}, {by_tcp(2, 3)}};
  call(rest);
  rank_zero.join();
  EXPECT_THAT(errors(rest), Each(""));
  EXPECT_EQ(zero[0].error, "");
}

// A rank of another start that is already further, and says what ranks of a mesh say; and one that asks for no backend
// that there is.
TEST(RollCall, WhoComesForSomethingElseIsAStranger) {
  std::array<char, 2'000> of_a_mesh{};
  std::memcpy(of_a_mesh.data(), &kMeshMagic, sizeof kMeshMagic);
  const Present of_none{.rank = 1, .world = 2, .pid = 7, .backend = Backend(77)};
  const std::string_view strangers[] = {{of_a_mesh.data(), of_a_mesh.size()},
                                        {reinterpret_cast<const char*>(&of_none), sizeof of_none}};
  for (const std::string_view said : strangers) {
    std::vector<Rank> zero{{by_tcp(0, 2)}}, one{{by_tcp(1, 2)}};
    std::thread rank_zero([&] { call(zero); });
    const auto address = rendezvous::resolve("test", one[0].place.master_addr, 29500);
    base::UniqueFd stranger;
    const std::function<void()> check = [] {};
    const Patience patience{std::chrono::steady_clock::now() + 20s, check};
    while (!stranger && !patience.is_over()) {
      stranger = connect_by(address, patience);
      if (!stranger) std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(send(stranger.get(), said.data(), said.size(), MSG_NOSIGNAL), ssize_t(said.size()));
    call(one);
    rank_zero.join();
    EXPECT_EQ(one[0].error, "");
    EXPECT_EQ(zero[0].error, "");
  }
}

TEST(RollCall, ARankZeroThatDoesNotComeIsNamed) {
  std::vector<Rank> ranks = {{by_tcp(1, 2), "one", {}, 200ms}, {by_tcp(1, 2), "one", {}, 200ms}};
  ranks[1].place.meeting_file = "/nowhere/meeting";
  call(ranks);
  EXPECT_THAT(ranks[0].error, HasSubstr("rank 1 did not reach rank 0 at tcp://"));
  EXPECT_THAT(ranks[1].error, HasSubstr("at file:///nowhere/meeting within 0.2 s: it has not written that file"));
}

TEST(RollCall, AFileOfAnEarlierStartIsTold) {
  const lockstep::testing::ScratchFolder folder;
  folder.write("meeting", "lockstep rank 0 127.0.0.1:1 abc\n");
  std::vector<Rank> ranks = {{by_tcp(0, 2), "one", {}, 200ms}, {by_tcp(1, 2), "one", {}, 200ms}};
  for (Rank& rank : ranks) {
    rank.place.meeting_file = folder.file("meeting");
    rank.place.socket_interface = "lo";
  }
  call(ranks);
  EXPECT_THAT(ranks[0].error, HasSubstr("where an earlier start has left it, remove it"));
  EXPECT_THAT(ranks[1].error,
              HasSubstr("nobody answers at 127.0.0.1:1, which it names; where an earlier start has left"));
}

// Until somebody has removed it; the port that it names may be another job's by now.
TEST(RollCall, WhoIsSentToAnotherJobByAFileLooksAgain) {
  const lockstep::testing::ScratchFolder folder;
  const auto start = [&](int rank, const char* file) {
    std::vector<Rank> ranks{{by_tcp(rank, 2)}};
    ranks[0].place.master_addr = "";
    ranks[0].place.socket_interface = "lo";
    ranks[0].place.meeting_file = folder.file(file);
    call(ranks);
    return ranks[0].error;
  };
  std::string other, one;
  std::thread other_zero([&] { other = start(0, "other"); });
  std::optional<std::string> address;
  for (int looks = 0; looks < 2'000 && !address; ++looks) {
    std::this_thread::sleep_for(5ms);
    address = rendezvous::AddressFile::read(folder.file("other"));
  }
  const std::string text = address.value_or("");
  folder.write("meeting", "lockstep rank 0 " + text.substr(0, text.find(' ')) + " of-a-dead-one\n");
  std::thread rank_one([&] { one = start(1, "meeting"); });
  std::this_thread::sleep_for(300ms);  // in which it is told
  EXPECT_EQ(unlink(folder.file("meeting").c_str()), 0);
  EXPECT_EQ(start(0, "meeting"), "");
  rank_one.join();
  EXPECT_EQ(one, "");
  EXPECT_EQ(start(1, "other"), "");
  other_zero.join();
  EXPECT_EQ(other, "");
}

constexpr const char* kOtherProgram = "SSH-2.0-anybody\r\n";

// A rank that an earlier start's file sends to another program.
Rank sent_by(const lockstep::testing::ScratchFolder& folder, const lockstep::testing::Stranger& stranger) {
  folder.write("meeting", "lockstep rank 0 " + stranger.address() + " of-a-dead-one\n");
  Rank rank{by_tcp(1, 2)};
  rank.place.master_addr = "";
  rank.place.socket_interface = "lo";
  rank.place.meeting_file = folder.file("meeting");
  return rank;
}

// It says something else than a rank, or nothing.
TEST(RollCall, WhoIsSentToAnotherProgramByAFileLooksAgain) {
  for (const char* says : {kOtherProgram, ""}) {
    const lockstep::testing::ScratchFolder folder;
    const lockstep::testing::Stranger stranger("127.0.0.1", 0, says);
    std::vector<Rank> one{sent_by(folder, stranger)}, zero = one;
    zero[0].place.rank = 0;
    std::thread rank_one([&] { call(one); });
    std::this_thread::sleep_for(300ms);  // in which it comes there
    EXPECT_EQ(unlink(folder.file("meeting").c_str()), 0);
    call(zero);
    rank_one.join();
    EXPECT_EQ(zero[0].error, "") << says;
    EXPECT_EQ(one[0].error, "") << says;
  }
}

TEST(RollCall, ARankZeroWhosePlaceAnotherProgramHasIsNamed) {
  const lockstep::testing::ScratchFolder folder;
  const Place place = by_tcp(1, 2);
  const lockstep::testing::Stranger at_master(place.master_addr, place.master_port, kOtherProgram);
  std::vector<Rank> ranks{{place}, sent_by(folder, at_master)};
  ranks[1].timeout = 500ms;
  call(ranks);
  EXPECT_EQ(ranks[0].error,
            "init: rank 1 did not reach rank 0 at tcp://" + at_master.address() + ": somebody else listens there");
  EXPECT_TRUE(ranks[0].wrong_use);
  EXPECT_EQ(ranks[1].error, "init: rank 1 did not reach rank 0 at file://" + folder.file("meeting") +
                                " within 0.5 s: it names " + at_master.address() +
                                ", and somebody else listens there; where an earlier start has left the file, remove "
                                "it");
  EXPECT_FALSE(ranks[1].wrong_use);
}

TEST(RollCall, TheAddressIsOneOfRankZerosMachineAndOneOnly) {
  std::vector<Rank> ranks = {{by_tcp(0, 2), "one", {}, 200ms}};
  ranks[0].place.master_addr = "0.0.0.0";
  call(ranks);
  EXPECT_THAT(ranks[0].error, HasSubstr("every address of a machine, not one"));
  ranks = {{by_tcp(0, 2), "one", {}, 200ms}};
  ranks[0].place.master_addr = "192.0.2.1";
  call(ranks);
  EXPECT_THAT(ranks[0].error, HasSubstr("it is to be an address of rank 0's machine"));
}

TEST(RollCall, APortThatSomebodyHasIsTold) {
  const Place place = by_tcp(0, 2);
  const rendezvous::Listening other =
      rendezvous::listen_at(rendezvous::resolve("test", place.master_addr, place.master_port));
  std::vector<Rank> ranks = {{place}};
  call(ranks);
  EXPECT_THAT(ranks[0].error, HasSubstr("another process is rank 0, or has that port"));
}

}  // namespace
}  // namespace lockstep::comm
