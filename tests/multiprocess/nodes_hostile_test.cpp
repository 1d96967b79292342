// A thousand connections that do not belong to a job, beside it: garbage, half open, slow, oversized, with a wrong key,
// and what a right agent has said, once more. The workers go on meanwhile.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/launch/nodes/secret.h"
#include "lockstep/launch/nodes/tls.h"
#include "lockstep/rendezvous/messages.h"
#include "lockstep/rendezvous/socket.h"
#include "tests/support/job.h"
#include "tests/support/sanitizers.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using base::UniqueFd;
using rendezvous::SocketAddress;
using ::testing::HasSubstr;
using testing::Job;
using ::testing::Not;

constexpr int kEach = 200;  // connections of each of five kinds, and fewer of the sixth

bool ready(int fd, short what) {
  pollfd wanted{.fd = fd, .events = what, .revents = 0};
  return poll(&wanted, 1, 5'000) == 1;
}

UniqueFd connect_to(const SocketAddress& address) {
  UniqueFd fd = rendezvous::begin_connect(address, {});
  if (fd) ready(fd.get(), POLLOUT);
  return fd;
}

void say(const UniqueFd& fd, const std::string& bytes) {
  (void)!send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// Between an agent and the hosting one: remembers what the first has said.
class Recorder {
 public:
  Recorder(const SocketAddress& here, const SocketAddress& there)
      : listener_(rendezvous::listen_at(here).fd), thread_([this, there] { run(there); }) {}
  ~Recorder() {
    over_ = true;
    thread_.join();
  }
  std::string said() {
    const std::lock_guard hold(mutex_);
    return said_;
  }

 private:
  // One connection after the other: the agent comes again when it is turned away.
  void run(const SocketAddress& there) {
    while (!over_) {
      pollfd listener{.fd = listener_.get(), .events = POLLIN, .revents = 0};
      if (poll(&listener, 1, 50) != 1) continue;
      const UniqueFd agent = rendezvous::accept_at(listener_.get());
      const UniqueFd host = connect_to(there);
      if (agent && host) pass_on(agent, host);
    }
  }

  void pass_on(const UniqueFd& agent, const UniqueFd& host) {
    note("");
    std::array<pollfd, 2> ends{
        {{.fd = agent.get(), .events = POLLIN, .revents = 0}, {.fd = host.get(), .events = POLLIN, .revents = 0}}};
    while (!over_) {
      if (poll(ends.data(), 2, 50) < 0) return;
      for (std::size_t i = 0; i < 2; ++i) {
        if (ends[i].revents == 0) continue;
        std::array<char, 16'384> bytes;
        const ssize_t count = read(ends[i].fd, bytes.data(), bytes.size());
        if (count < 0 && errno == EAGAIN) continue;
        if (count <= 0) return;
        if (i == 0) note(std::string(bytes.data(), std::size_t(count)));
        ready(ends[1 - i].fd, POLLOUT);
        if (write(ends[1 - i].fd, bytes.data(), std::size_t(count)) != count) return;
      }
    }
  }

  // Nothing: a new connection begins.
  void note(const std::string& bytes) {
    const std::lock_guard hold(mutex_);
    said_ = bytes.empty() ? "" : said_ + bytes;
  }

  const UniqueFd listener_;
  std::mutex mutex_;
  std::string said_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// VmHWM, in KiB.
long most_memory(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
  return -1;
}

std::size_t descriptors(pid_t pid) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd"))
    ++count;
  return count;
}

double now_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double uptime() {
  double now = 0;
  std::ifstream("/proc/uptime") >> now;
  return now;
}

// From lines of a worker's pid and a time: the seconds between two beats of one worker within that time, the shortest
// first.
std::vector<double> gaps(const std::string& beats, double from, double until) {
  std::map<int, double> last;
  std::vector<double> found;
  std::istringstream words(beats);
  int worker = 0;
  for (double now = 0; words >> worker >> now;) {
    const auto [before, is_first] = last.try_emplace(worker, now);
    if (!is_first && before->second >= from && now <= until) found.push_back(now - before->second);
    before->second = now;
  }
  std::ranges::sort(found);
  return found;
}

double ninth_tenth(const std::vector<double>& sorted) { return sorted[sorted.size() * 9 / 10]; }
double median(const std::vector<double>& sorted) { return sorted[sorted.size() / 2]; }

// For gaps(): when the steps of a run were told, in seconds since 1970.
std::string told_steps(const std::string& metrics) {
  std::string beats;
  for (const std::string& line : testing::lines(testing::read_file(metrics))) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (event.is_discarded() || event["event"] != "train") continue;
    beats += "0 " + std::to_string(event["time"].get<double>()) + "\n";
  }
  return beats;
}

// As many as a process may hold without asking, at a time; the oldest are closed.
class Crowd {
 public:
  explicit Crowd(const SocketAddress& address) : address_(address) {}
  const UniqueFd& one_more() {
    if (open_.size() == 300) open_.erase(open_.begin());
    open_.push_back(connect_to(address_));
    return open_.back();
  }
  void each_says(const std::string& bytes) const {
    for (const UniqueFd& fd : open_) say(fd, bytes);
  }

 private:
  const SocketAddress address_;
  std::vector<UniqueFd> open_;
};

// An address of this test's own.
std::string address_at(int last) {
  return "127.212." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(1 + (getpid() + last) % 250);
}

void make_keys(const testing::ScratchFolder& folder) {
  for (const char* key : {"key", "wrong"}) {
    Job make({"/bin/sh", "-c", LOCKSTEP_PROGRAM " secret new > " + folder.file(key)});
    ASSERT_EQ(make.wait(), 0) << make.err();
  }
}

// One connection of each kind.
void strangers_come(Crowd& crowd, const launch::Tls& wrong) {
  say(crowd.one_more(), "GET / HTTP/1.1\r\nHost: you\r\n\r\n");
  crowd.one_more();                               // half open: not a word
  say(crowd.one_more(), std::string(1, '\x16'));  // slow: a byte now and then
  say(crowd.one_more(), std::string("\x16\x03\x01\xff\xff", 5) + std::string(20'000, 'x'));
  const UniqueFd& keyed = crowd.one_more();
  const auto channel = wrong.connect(keyed.get());
  std::array<char, 1'000> bytes;
  channel->read(bytes.data(), bytes.size());  // says hello
}

TEST(NodesHostile, AThousandConnectionsDoNotTouchTheJob) {
  const testing::ScratchFolder folder;
  const SocketAddress there = rendezvous::resolve("test", address_at(0), 29'400);
  ASSERT_NO_FATAL_FAILURE(make_keys(folder));
  const auto agent = [&](const std::string& address, const std::string& conf) {
    const std::string script = "echo $RANK of $WORLD_SIZE; until [ -e " + folder.file("go") +
                               " ]; do read now rest < /proc/uptime; echo $$ $now >> " + folder.file("beats") +
                               "; sleep 0.02; done";
    return std::vector<std::string>{LOCKSTEP_PROGRAM,
                                    "run",
                                    "--nnodes",
                                    "1:2",
                                    "--rdzv-backend",
                                    "c10d",
                                    "--rdzv-endpoint",
                                    address,
                                    "--secret-file",
                                    folder.file("key"),
                                    "--rdzv-conf",
                                    "last_call_timeout=0.01," + conf,
                                    "sh",
                                    "-c",
                                    script};
  };
  Job host(agent(address_at(0), "is_host=1"));
  host.wait_for_lines(1);
  const long memory = most_memory(host.pid());
  const std::size_t before = descriptors(host.pid());
  std::size_t most = before;
  const auto beats = [&] { return testing::read_file(folder.file("beats")); };
  testing::wait_until([&] { return testing::lines(beats()).size() >= 30; });
  const double crowd_comes = uptime();

  const launch::Tls wrong(launch::read_secret(folder.file("wrong")));
  Crowd crowd(there);
  const auto attack = [&](int first, int count, std::chrono::milliseconds pause) {
    for (int i = first; i < first + count; ++i) {
      std::this_thread::sleep_for(pause);
      strangers_come(crowd, wrong);
      if (i % 20 != 0) continue;
      crowd.each_says("\x03");
      most = std::max(most, descriptors(host.pid()));
    }
  };
  attack(0, kEach / 2, std::chrono::milliseconds(0));
  // In the middle of it a right one comes.
  Recorder recorder(rendezvous::resolve("test", address_at(1), 29'400), there);
  Job late(agent(address_at(1), "is_host=0"));
  // Not so fast that its connection is the oldest of too many before it has said a word, ten times running.
  attack(kEach / 2, kEach / 2, std::chrono::milliseconds(20));
  EXPECT_THAT(late.wait_for_lines(1), ::testing::ElementsAre("1 of 2")) << late.err();
  EXPECT_THAT(host.wait_for_lines(2), ::testing::ElementsAre("0 of 1", "0 of 2"));
  const std::vector<double> alone = gaps(beats(), 0, crowd_comes);
  const std::vector<double> crowded = gaps(beats(), crowd_comes, uptime());
  // What it has said opens no door again.
  const std::string said = recorder.said();
  ASSERT_GT(said.size(), 300u) << "a handshake and a question";
  for (int i = 0; i < 50; ++i) say(crowd.one_more(), said);
  most = std::max(most, descriptors(host.pid()));

  const long grown = most_memory(host.pid()) - memory;
  if (!support::kAddressSanitizer) {  // which keeps what was freed for a while
    EXPECT_LE(grown, 32 * 1024) << "KiB of memory";
  }

  folder.write("go", "");
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_EQ(late.wait(), 0) << late.err();
  EXPECT_EQ(testing::lines(host.out()).size(), 2u);
  EXPECT_EQ(testing::lines(late.out()).size(), 1u);
  EXPECT_THAT(host.err() + late.err(), Not(HasSubstr("lost")));
  ASSERT_GE(alone.size(), 10u);
  ASSERT_GE(crowded.size(), 10u);
  // So wide that it is no measure: a job that stands still is seen.
  EXPECT_LE(ninth_tenth(crowded), std::max(0.2, 10 * ninth_tenth(alone)));
  EXPECT_LE(most, before + 64 + 8 + 8) << "descriptors: strangers, a worker's, what is being accepted";
  RecordProperty("descriptors", int(most - before));
  RecordProperty("memory_kib", int(grown));
  RecordProperty("beat_alone_ms", int(1e3 * ninth_tenth(alone)));
  RecordProperty("beat_in_the_crowd_ms", int(1e3 * ninth_tenth(crowded)));
}

// Over two nodes, so that the gradients of each step cross while the strangers are there.
TEST(NodesHostile, AJobThatTrainsMakesItsStepsMeanwhile) {
  const testing::ScratchFolder folder;
  ASSERT_NO_FATAL_FAILURE(make_keys(folder));
  const auto agent = [&](const std::string& conf) {
    return std::vector<std::string>{LOCKSTEP_PROGRAM,
                                    "run",
                                    "--nnodes",
                                    "2",
                                    "--rdzv-backend",
                                    "c10d",
                                    "--rdzv-endpoint",
                                    address_at(2),
                                    "--secret-file",
                                    folder.file("key"),
                                    "--rdzv-conf",
                                    conf,
                                    LOCKSTEP_PROGRAM,
                                    "train",
                                    "--dataset",
                                    "digits",
                                    "--model",
                                    "mlp",
                                    "--epochs",
                                    "10000",
                                    "--no-eval",
                                    "--print-freq",
                                    "1",
                                    "--save-every",
                                    "1000000",
                                    "--output-dir",
                                    folder.file("run")};
  };
  Job host(agent("is_host=1"));
  Job other(agent("is_host=0"));
  const std::string metrics = folder.file("run/metrics.jsonl");
  testing::wait_until([&] { return testing::lines(testing::read_file(metrics)).size() >= 300; });

  const double crowd_comes = now_since_1970();
  const launch::Tls wrong(launch::read_secret(folder.file("wrong")));
  Crowd crowd(rendezvous::resolve("test", address_at(2), 29'400));
  for (int i = 0; i < kEach; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    strangers_come(crowd, wrong);
    if (i % 20 == 0) crowd.each_says("\x03");
  }
  const double crowd_is_there = now_since_1970();
  kill(testing::pid_of_rank(host, 0), SIGTERM);  // all ranks end behind the same step, and it is saved
  EXPECT_EQ(host.wait(), 75) << host.err();
  EXPECT_EQ(other.wait(), 75) << other.err();
  EXPECT_THAT(host.err() + other.err(), Not(HasSubstr("lost")));
  EXPECT_TRUE(host.nothing_left() && other.nothing_left());

  const std::string steps = told_steps(metrics);
  const std::vector<double> alone = gaps(steps, 0, crowd_comes);
  const std::vector<double> crowded = gaps(steps, crowd_comes, crowd_is_there);
  ASSERT_GE(alone.size(), 200u);
  ASSERT_GE(crowded.size(), 50u) << "steps in " << crowd_is_there - crowd_comes << " s";
  RecordProperty("step_alone_us", int(1e6 * median(alone)));
  RecordProperty("step_in_the_crowd_us", int(1e6 * median(crowded)));
  // The strangers take their part of two cores, and so may others: as wide as a job that is held up needs to be seen.
  EXPECT_LE(median(crowded), 3 * median(alone) + 0.005);
}

}  // namespace
}  // namespace lockstep
