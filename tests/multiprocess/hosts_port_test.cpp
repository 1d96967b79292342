// The port at which agents of `lockstep run --hosts` meet, where it is taken on the first host. A host is an address
// of the loopback.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/rendezvous/socket.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Job;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// A remote shell that runs the command here. At first it says which port the first host's agent is given, and waits
// until that is taken.
std::string shell_that_waits(const testing::ScratchFolder& folder, const std::string& first_host) {
  std::string text =
      "#!/bin/sh\n"
      "host=$1; shift; cd FOLDER\n"
      "if [ $host = FIRST ] && [ ! -e port ]; then\n"
      "  printf '%s\\n' \"$*\" | sed \"s/.*'--rdzv-endpoint' '[^']*:\\([0-9]*\\)'.*/\\1/\" > new; mv new port\n"
      "  until [ -e taken ]; do sleep 0.01; done\n"
      "fi\n"
      "exec sh -c \"$*\"\n";
  text.replace(text.find("FOLDER"), 6, folder.path());
  text.replace(text.find("FIRST"), 5, first_host);
  const std::string path = folder.write("shell", text);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

// As that of another job might, which speaks to no agent of this one: the second host's fails before the first has
// been told that its port is taken.
TEST(HostsPort, IsDrawnAnewWhereAnotherAgentHasFailedForItAlready) {
  const testing::ScratchFolder folder;
  const std::string a = "127.215." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(1 + getpid() % 250);
  const std::string b = "127.216.0.1";
  const std::string fails = "if [ $1 = " + b + " ] && mkdir refused 2>/dev/null; then exit 2; fi\n";
  const std::string goes_on = "exec " + shell_that_waits(folder, a) + " \"$@\"\n";
  const std::string shell = folder.write("shell_of_two", "#!/bin/sh\ncd " + folder.path() + "\n" + fails + goes_on);
  std::filesystem::permissions(shell, std::filesystem::perms::owner_all);
  const std::vector<std::string> command{
      LOCKSTEP_PROGRAM, "run", "--hosts", a + "," + b, "--remote-shell", shell, "sh", "-c", "echo $RANK/$WORLD_SIZE"};
  Job job(command);
  testing::wait_until([&] { return std::filesystem::exists(folder.file("port")); });
  const int port = std::stoi(testing::read_file(folder.file("port")));
  const rendezvous::Listening stranger = rendezvous::listen_at(rendezvous::resolve("test", a, port));
  ASSERT_TRUE(stranger.fd);
  testing::wait_until([&] { return std::filesystem::exists(folder.file("refused")); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until its end is known
  folder.write("taken", "");
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(testing::lines(job.out()), UnorderedElementsAre(a + ": 0/2", b + ": 1/2"));
  EXPECT_THAT(job.err(), HasSubstr(": all agents are started again, with another"));
  EXPECT_TRUE(job.nothing_left());
}

// The starter draws it from those that are free on its own machine. Where it was named no other will do.
TEST(HostsPort, IsDrawnAnewWhereItIsTaken) {
  const testing::ScratchFolder folder;
  const std::string a = "127.213." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(1 + getpid() % 250);
  const std::string b = "127.214.0.1";
  const std::string shell = shell_that_waits(folder, a);
  const auto command = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> all{LOCKSTEP_PROGRAM, "run", "--hosts", a + "," + b, "--remote-shell", shell};
    all.insert(all.end(), flags.begin(), flags.end());
    all.insert(all.end(), {"sh", "-c", "echo $RANK/$WORLD_SIZE"});
    return all;
  };
  Job job(command({}));
  testing::wait_until([&] { return std::filesystem::exists(folder.file("port")); });
  const int port = std::stoi(testing::read_file(folder.file("port")));
  const rendezvous::Listening stranger = rendezvous::listen_at(rendezvous::resolve("test", a, port));
  ASSERT_TRUE(stranger.fd);
  folder.write("taken", "");
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(testing::lines(job.out()), UnorderedElementsAre(a + ": 0/2", b + ": 1/2"));
  EXPECT_THAT(job.err(),
              AllOf(HasSubstr(":" + std::to_string(port) + " (--node-rank 0): the port is taken, by another "),
                    HasSubstr("lockstep: " + a + ": the port was free here, where it was chosen: all agents are ")));
  EXPECT_TRUE(job.nothing_left());

  Job named(command({"--rdzv-endpoint", a + ":" + std::to_string(port)}));
  EXPECT_EQ(named.wait(), 2) << named.err();
  EXPECT_THAT(named.err(), Not(HasSubstr("started again")));
  EXPECT_TRUE(named.nothing_left());
}

}  // namespace
}  // namespace lockstep
