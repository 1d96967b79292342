#include "lockstep/rendezvous/segment_exchange.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "tests/support/wait_until.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A job key that no other run of this test uses.
Place place(int local_rank, int local_world, const std::string& key) {
  Place result;
  result.rank = result.local_rank = local_rank;
  result.world_size = result.local_world_size = local_world;
  result.launcher = "torchrun";
  result.job_key = "test " + std::to_string(getpid()) + " " + key;
  return result;
}

std::string failure_of(const Place& place, std::chrono::milliseconds timeout) {
  try {
    share_segment(place, timeout);
    return "shared";
  } catch (const Error& error) {
    return error.what();
  }
}

// Writes this rank's number where the others can see it.
void sign(const base::Segment& segment, int rank) {
  segment.control().ranks[rank].step.store(100 + std::uint64_t(rank));
}

// A child that runs `body`; its exit code is what that returns. Killed at the latest with this object.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ == 0) _exit(body());
  }
  Child(const Child&) = delete;
  ~Child() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  int wait() {
    int status = -1;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

// A gate that children pass when the parent opens it, or is gone.
class Gate {
 public:
  Gate() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    inside_ = base::UniqueFd(ends[0]);
    outside_ = base::UniqueFd(ends[1]);
  }
  void open() { outside_ = base::UniqueFd(); }
  void pass() {
    char none = 0;
    outside_ = base::UniqueFd();
    [[maybe_unused]] const ssize_t got = read(inside_.get(), &none, 1);
  }

 private:
  base::UniqueFd inside_, outside_;
};

// The abstract names at which this process listens.
std::vector<std::string> own_names() {
  std::vector<std::string> names;
  std::ifstream table("/proc/self/net/unix");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string word, inode, name;
    for (int i = 0; i < 6; ++i) words >> word;
    if (!(words >> inode >> name) || !name.starts_with("@lockstep-")) continue;
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(file, gone) == "socket:[" + inode + "]") names.push_back(name.substr(1));
    }
  }
  return names;
}

// What local rank 0 of this job of two is found by, in one run of it.
std::string name_of(const Place& zero, const Place& one) {
  std::thread rank_zero([&] { failure_of(zero, 20s); });
  std::vector<std::string> names;
  lockstep::testing::wait_until([&] { return !(names = own_names()).empty(); });
  failure_of(one, 20s);  // so that it has come to its end
  rank_zero.join();
  return names.front();
}

base::UniqueFd listen_at(const std::string& name) {
  base::UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) throw std::runtime_error("bind");
  if (listen(fd.get(), 8) != 0) throw std::runtime_error("listen");
  return fd;
}

// Another user who listens at `names` until the object goes.
class Stranger {
 public:
  explicit Stranger(const std::vector<std::string>& names)
      : process_([&] {
          if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) return 1;
          std::vector<base::UniqueFd> listeners;
          for (const std::string& name : names) listeners.push_back(listen_at(name));
          up_.open();
          pause();
          return 0;
        }) {
    up_.pass();
  }
  pid_t pid() const { return process_.pid(); }

 private:
  Gate up_;
  Child process_;
};

TEST(ShareSegment, AloneMakesItsOwn) {
  const base::Segment segment = share_segment(Place{}, 1s);
  EXPECT_EQ(segment.control().local_world, 1);
}

TEST(ShareSegment, ThePathOfAnAgentIsOpened) {
  const base::Segment made = base::Segment::create(2);
  Place here = place(1, 2, "path");
  here.segment_path = made.path();
  sign(share_segment(here, 1s), 1);
  EXPECT_EQ(made.control().ranks[1].step.load(), 101u);
}

TEST(ShareSegment, AnAgentThatIsGoneIsNamed) {
  Place here = place(1, 2, "gone");
  here.segment_path = "/proc/2147483647/fd/3";
  EXPECT_THAT(failure_of(here, 1s), HasSubstr("/proc/2147483647/fd/3"));
}

TEST(ShareSegment, ForkedRanksShareOneMemory) {
  constexpr int kRanks = 8;
  std::vector<Place> places;
  for (int rank = 0; rank < kRanks; ++rank) places.push_back(place(rank, kRanks, "forked"));
  Gate all_here;
  std::vector<std::unique_ptr<Child>> children;
  for (int rank = 1; rank < kRanks; ++rank)
    children.push_back(std::make_unique<Child>([&, rank] {
      sign(share_segment(places[std::size_t(rank)], 20s), rank);
      all_here.pass();
      return 0;
    }));
  const base::Segment segment = share_segment(places[0], 20s);
  all_here.open();
  for (const auto& child : children) EXPECT_EQ(child->wait(), 0);
  for (int rank = 1; rank < kRanks; ++rank)
    EXPECT_EQ(segment.control().ranks[rank].step.load(), 100 + std::uint64_t(rank));
}

TEST(ShareSegment, MissingRanksAreNamed) {
  std::thread present([] { failure_of(place(2, 4, "missing"), 20s); });
  EXPECT_THAT(failure_of(place(0, 4, "missing"), 1s), HasSubstr("did not come within 1 s: 1, 3"));
  present.join();
}

TEST(ShareSegment, AMissingRankZeroIsNamed) {
  EXPECT_THAT(failure_of(place(1, 2, "no zero"), 50ms), HasSubstr("local rank 0 did not offer the segment"));
}

TEST(ShareSegment, AnOlderAttemptIsNotJoined) {
  std::thread stale([] { failure_of(place(0, 2, "attempt 0"), 300ms); });
  EXPECT_THAT(failure_of(place(1, 2, "attempt 1"), 100ms), HasSubstr("did not offer"));
  stale.join();
}

TEST(ShareSegment, AnotherWorldSizeIsAnError) {
  std::thread other([] { failure_of(place(1, 3, "sizes"), 2s); });
  EXPECT_THAT(failure_of(place(0, 2, "sizes"), 20s), HasSubstr("started for 3 local ranks, local rank 0 for 2"));
  other.join();
}

TEST(ShareSegment, TwoOfTheSameRankAreAnError) {
  std::thread one([] { failure_of(place(1, 3, "twins"), 20s); });
  std::thread two([] { failure_of(place(1, 3, "twins"), 20s); });
  EXPECT_THAT(failure_of(place(0, 3, "twins"), 20s), HasSubstr("two processes are local rank 1"));
  one.join();
  two.join();
}

TEST(ShareSegment, ASecondLocalRankZeroIsAnError) {
  std::thread first([] { failure_of(place(0, 2, "zeros"), 500ms); });
  std::string second = failure_of(place(0, 2, "zeros"), 100ms);
  first.join();
  // Whichever came second found the name taken; the other waited for rank 1 in vain.
  EXPECT_THAT(second, ::testing::AnyOf(HasSubstr("local rank 0 of this job already"), HasSubstr("did not come")));
}

// ---- strangers, and peers that end

TEST(ShareSegment, AnotherUserCannotKeepTheJobFromItsName) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  const std::string name = name_of(place(0, 2, "squatted"), place(1, 2, "squatted"));
  const std::string beginning = name.substr(0, name.rfind('-') + 1);
  const Stranger stranger({name, beginning + "0000000000000000", beginning + "ffffffffffffffff"});
  const Place one = place(1, 2, "squatted");
  Gate here;
  Child other([&] {
    sign(share_segment(one, 20s), 1);
    here.pass();
    return 0;
  });
  const base::Segment segment = share_segment(place(0, 2, "squatted"), 20s);
  here.open();
  EXPECT_EQ(other.wait(), 0);
  EXPECT_EQ(segment.control().ranks[1].step.load(), 101u);
}

TEST(ShareSegment, WhoPretendsToBeRankZeroIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  const Stranger stranger({name_of(place(0, 2, "pretender"), place(1, 2, "pretender"))});
  EXPECT_THAT(failure_of(place(1, 2, "pretender"), 200ms),
              AllOf(HasSubstr("local rank 0 did not offer the segment"),
                    HasSubstr("process " + std::to_string(stranger.pid()) + " of user 65534")));
}

TEST(ShareSegment, JobsInOtherPidNamespacesAreOtherJobs) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make a PID namespace";
  // The same user and key, inside as outside.
  const Place zero = place(0, 2, "namespaces"), one = place(1, 2, "namespaces");
  Child inside([&] {
    if (unshare(CLONE_NEWPID) != 0) return 77;
    Child rank_one([&] {
      std::string failure;  // of one that looks until there is a local rank 0 outside
      lockstep::testing::wait_until([&] {
        failure = failure_of(one, 50ms);
        return failure == "shared" || failure.find("in another PID namespace") != std::string::npos;
      });
      return failure == "shared" ? 1 : 0;
    });
    return rank_one.wait();
  });
  std::string outside;
  std::thread rank_zero([&] { outside = failure_of(zero, 60s); });
  const int code = inside.wait();
  EXPECT_EQ(failure_of(one, 20s), "shared");
  rank_zero.join();
  EXPECT_EQ(outside, "shared") << "the one inside was taken for local rank 1";
  if (code == 77) GTEST_SKIP() << "no PID namespace to be had";
  EXPECT_EQ(code, 0);
}

TEST(ShareSegment, WhoSaysNothingHoldsUpNobody) {
  const Place zero = place(0, 2, "silent"), one = place(1, 2, "silent");
  Child server([&] {
    share_segment(zero, 20s);
    return 0;
  });
  // A connection to whatever this job's rank 0 listens at, without a word.
  base::UniqueFd silent;
  lockstep::testing::wait_until([&] {
    std::ifstream table("/proc/self/net/unix");
    const std::string beginning = "@lockstep-" + std::to_string(geteuid()) + "-";
    for (std::string line; std::getline(table, line);) {
      const std::size_t at = line.find(beginning);
      if (at == std::string::npos) continue;
      const std::string name = line.substr(at + 1);
      base::UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path + 1, name.data(), name.size());
      const auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
      if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) continue;
      ucred peer{};
      socklen_t size = sizeof peer;
      getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
      if (peer.pid == server.pid()) silent = std::move(fd);
    }
    return bool(silent);
  });
  EXPECT_EQ(failure_of(one, 20s), "shared");
  EXPECT_EQ(server.wait(), 0);
}

TEST(ShareSegment, APeerThatEndsBeforeAllHaveComeIsNamed) {
  const Place one = place(1, 3, "ended");
  Child peer([&] {
    share_segment(one, 20s);
    return 0;
  });
  EXPECT_THAT(failure_of(place(0, 3, "ended"), 20s),
              HasSubstr("local rank 1 (process " + std::to_string(peer.pid()) + ") has ended before"));
}

TEST(ShareSegment, AnotherJobOfTheSameUserIsNotMet) {
  std::thread zero([] { failure_of(place(0, 2, "one job"), 500ms); });
  EXPECT_THAT(failure_of(place(1, 2, "another job"), 200ms), HasSubstr("did not offer"));
  zero.join();
}

}  // namespace
}  // namespace lockstep::rendezvous
