#include "lockstep/launch/doctor/gather.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/unique_fd.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::launch {
namespace {

using testing::HasSubstr;

TEST(HostPort, Forms) {
  const struct {
    const char* text;
    const char* host;
    int port;
  } rows[] = {{"node1", "node1", 0},
              {"node1:29400", "node1", 29400},
              {"10.0.0.1:0", "10.0.0.1", 0},
              {"[::1]:29400", "::1", 29400},
              {"[::1]", "::1", 0},
              {"::1", "::1", 0},
              {"fe80::1%eth0", "fe80::1%eth0", 0}};
  for (const auto& row : rows) {
    const HostPort read = parse_host_port("--endpoint", row.text);
    EXPECT_EQ(read.host, row.host) << row.text;
    EXPECT_EQ(read.port, row.port) << row.text;
  }
  for (const char* text :
       {"", ":1", "a:", "a:x", "a:65536", "a:-1", "a:1x", "[::1", "[::1]x", "[]:1", "a b", "-oX=y", "a\n", "a;b"})
    EXPECT_THAT(testing::usage_error([&] { parse_host_port("--endpoint", text); }),
                testing::AllOf(testing::StartsWith("--endpoint '"), HasSubstr("HOST:PORT")))
        << text;
}

TEST(Gather, AnEndpointHere) {
  const auto interfaces = gather_interfaces();
  const EndpointFacts free = gather_endpoint("127.0.0.1", interfaces);
  EXPECT_EQ(free.error, "");
  EXPECT_EQ(free.address, "127.0.0.1");
  EXPECT_EQ(free.interface_name, "lo");
  EXPECT_TRUE(free.local);
  EXPECT_EQ(free.port_error, "");
}

TEST(Gather, APortThatIsTaken) {
  const base::UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string text = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  EXPECT_THAT(gather_endpoint(text, gather_interfaces()).port_error, HasSubstr("in use"));
}

TEST(Gather, NamesThatDoNotResolve) {
  EXPECT_THAT(gather_endpoint("no-such-host.invalid:1", {}).error,
              HasSubstr("'no-such-host.invalid' does not resolve"));
  EXPECT_NE(gather_names("no-such-host.invalid").error, "");
  const NameFacts here = gather_names("127.0.0.1");
  EXPECT_EQ(here.error, "");
  ASSERT_FALSE(here.addresses.empty());
  EXPECT_EQ(here.addresses.front().address, "127.0.0.1");
}

TEST(Gather, AProcessWithASegmentIsFound) {
  const base::UniqueFd segment(memfd_create("lockstep-segment", MFD_CLOEXEC));
  constexpr off_t hole = off_t(1) << 30;  // of the file, as rooms of areas are, and no memory
  ASSERT_EQ(posix_fallocate(segment.get(), hole, 8192), 0);
  const auto processes = gather_processes();
  const auto self = std::ranges::find(processes, getpid(), &JobProcess::pid);
  ASSERT_NE(self, processes.end());
  EXPECT_GE(self->segment_bytes, 8192U);
  EXPECT_LT(self->segment_bytes, std::uint64_t(hole));
}

TEST(Gather, LogFoldersAreThoseOfTheLauncher) {
  const testing::ScratchFolder folder;
  for (const char* name : {"lockstep_AbCd12", "lockstep_x", "lockstep-test-AbCd12"})
    std::filesystem::create_directory(folder.file(name));
  folder.write("lockstep_aaaaaa", "a file");
  EXPECT_THAT(gather_log_folders(folder.path()), testing::ElementsAre(folder.file("lockstep_AbCd12")));
}

TEST(Gather, TheFactsAreThisProcesss) {
  const LocalFacts facts =
      gather_local_facts({"1.2", "abc", "GNU", "Debug"}, {"libtorch", {{"trainer", "x"}, {"version", "2.11"}}}, "");
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  EXPECT_EQ(facts.files->soft.value_or(RLIM_INFINITY), files.rlim_cur);
  EXPECT_EQ(facts.versions.commit, "abc");
  EXPECT_EQ(facts.versions.libtorch, "2.11");
  EXPECT_THAT(facts.versions.kernel, testing::StartsWith("Linux "));
  EXPECT_FALSE(facts.endpoint);
  EXPECT_GE(facts.cores.by_affinity, 1);
}

}  // namespace
}  // namespace lockstep::launch
