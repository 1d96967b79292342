// Who is let into a job over several nodes, and who is refused, in one line.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "lockstep/base/unique_fd.h"
#include "lockstep/rendezvous/messages.h"
#include "lockstep/rendezvous/socket.h"
#include "tests/multiprocess/nodes_fixture.h"
#include "tests/multiprocess/two_nodes.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Job;
using testing::NodesTest;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

TEST_F(NodesTest, ARankThatIsTakenIsRefusedWithTheHostThatHasIt) {
  const auto flags = [](const std::string& rank) {
    return std::vector<std::string>{"--rdzv-backend", "static", "--nnodes", "3", "--node-rank", rank};
  };
  Job& host = agent(flags("0"), "true");
  Job& one = agent(flags("1"), "true");
  while (host.err().find("2 of 3 nodes") == std::string::npos) usleep(10'000);
  Job& again = agent(flags("1"), "true");
  EXPECT_EQ(again.wait(), 2);
  EXPECT_EQ(testing::lines(again.err()).size(), 1u) << again.err();
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  EXPECT_THAT(again.err(), HasSubstr("--node-rank 1 of " + std::string(name) + " is taken by " + name));
  Job& last = agent(flags("2"), "true");
  for (Job* job : {&host, &one, &last}) EXPECT_EQ(job->wait(), 0) << job->err();
}

TEST_F(NodesTest, WhoDoesNotFitIsRefusedInOneLine) {
  Job& host = agent({"--nnodes", "2", "--rdzv-id", "right", "--rdzv-conf", "is_host=1"}, "true");
  const std::string start = "lockstep: error: run: ";
  const auto refused = [&](std::vector<std::string> flags) {
    Job& job = agent(std::move(flags), "true");
    EXPECT_EQ(job.wait(), 2) << job.err();
    EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
    return job.err();
  };
  const std::string no_host = "is_host=0";
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-id", "wrong", "--rdzv-conf", no_host}),
              AllOf(HasSubstr(start + "--rdzv-id is 'wrong' on "), HasSubstr("and 'right' on ")));
  EXPECT_THAT(refused({"--nnodes", "1:3", "--rdzv-id", "right", "--rdzv-conf", no_host}),
              HasSubstr("--nnodes is '1:3' on "));
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-id", "right", "--rdzv-conf", no_host + ",keep_alive_max_attempt=60"}),
              AllOf(HasSubstr("--rdzv-conf keep_alive_max_attempt is '60' on "), HasSubstr("and '5' on ")));
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-backend", "static", "--node-rank", "1", "--rdzv-id", "right"}),
              HasSubstr("--rdzv-backend is 'static' on "));
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-conf", "is_host=1"}), HasSubstr("the port is taken"));
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-endpoint", "192.0.2.1", "--insecure", "--rdzv-conf", "is_host=1"}),
              HasSubstr("192.0.2.1:29400 (is_host): the address is not one of this machine's"));
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-endpoint", "192.0.2.1"}), HasSubstr("--secret-file FILE"));
  for (const char* any : {"0.0.0.0", "::", "[::ffff:0.0.0.0]:29400"})
    EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-endpoint", any}), HasSubstr("every address of a machine"));
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-endpoint", "no.such.host.invalid", "--rdzv-conf", "is_host=1"}),
              HasSubstr(start + "--rdzv-endpoint no.such.host.invalid: no such host"));
  EXPECT_THAT(refused({"--nnodes", "2", "--rdzv-endpoint", "no.such.host.invalid", "--rdzv-conf", "join_timeout=0.1"}),
              AllOf(HasSubstr(start + "the time is up (1 s): no agent hosts at no."), HasSubstr("no such host")));
  EXPECT_THAT(refused({"--nnodes", "2", "--local-addr", "192.0.2.1", "--insecure"}),
              HasSubstr(start + "--local-addr 192.0.2.1: not an address of this machine ("));
  EXPECT_THAT(refused({"--nnodes", "2", "--local-addr", "::1"}), HasSubstr("different families: IPv4 and IPv6"));
  Job& right = agent({"--nnodes", "2", "--rdzv-id", "right", "--rdzv-conf", no_host}, "true");
  EXPECT_EQ(right.wait(), 0) << right.err();
  EXPECT_EQ(host.wait(), 0) << host.err();
}

// What its store says first, as torch 2.11 does; it is not answered in a language that it knows.
TEST_F(NodesTest, ATorchrunAgentIsToldOfInOneLineWithAKeyAndWithout) {
  const testing::ScratchFolder folder;
  std::ofstream(folder.file("key")) << std::string(64, 'a');
  chmod(folder.file("key").c_str(), 0600);
  const std::string hello(
      "\x00\xce\xf7\x85\x3c\x0d"
      "abcd",
      10);
  for (const bool key : {false, true}) {
    const std::string port = key ? "29402" : "29401";
    std::vector<std::string> flags{"--nnodes", "2", "--rdzv-endpoint", address_ + ":" + port};
    if (key) flags.insert(flags.end(), {"--secret-file", folder.file("key")});
    Job& host = agent(flags, "true");
    while (host.err().find("1 of 2 nodes") == std::string::npos) usleep(10'000);
    for (int i = 0; i < 2; ++i) {  // again and again, as it does
      const base::UniqueFd fd = rendezvous::begin_connect(rendezvous::resolve("test", address_, std::stoi(port)), {});
      pollfd there{fd.get(), POLLOUT, 0};
      EXPECT_EQ(poll(&there, 1, 10'000), 1);
      EXPECT_EQ(send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL), ssize_t(hello.size()));
      there.events = POLLIN;
      EXPECT_EQ(poll(&there, 1, 10'000), 1) << "it is let go";
    }
    Job& right = agent(flags, "true");
    EXPECT_EQ(right.wait(), 0) << right.err();
    EXPECT_EQ(host.wait(), 0) << host.err();
    int told = 0;
    for (const std::string& line : testing::lines(host.err()))
      if (line.starts_with("lockstep: a torchrun agent at 127.0.0.1:") && line.ends_with("or torchrun")) ++told;
    EXPECT_EQ(told, 1) << host.err();
  }
}

TEST_F(NodesTest, AnotherVersionIsRefusedWithBoth) {
  Job& host = agent({"--nnodes", "2", "--rdzv-id", "job", "--rdzv-conf", "is_host=1"}, "true");
  while (host.err().find("1 of 2 nodes") == std::string::npos) usleep(10'000);
  const base::UniqueFd fd = rendezvous::begin_connect(rendezvous::resolve("test", address_, 29'400), {});
  pollfd there{fd.get(), POLLOUT, 0};
  EXPECT_EQ(poll(&there, 1, 10'000), 1);
  const std::string join = to_frame(
      rendezvous::Join{.version = "0.0.1", .run_id = "job", .nnodes = "2", .backend = "c10d", .host = "elsewhere"});
  EXPECT_EQ(send(fd.get(), join.data(), join.size(), MSG_NOSIGNAL), ssize_t(join.size()));
  std::string received, why;
  for (there.events = POLLIN; why.empty() && poll(&there, 1, 10'000) == 1;) {
    char bytes[4096];
    const ssize_t count = recv(fd.get(), bytes, sizeof bytes, 0);
    if (count <= 0) break;
    received.append(bytes, std::size_t(count));
    while (const auto message = rendezvous::take_message(received, rendezvous::kLongestMessage))
      if (const auto* refused = std::get_if<rendezvous::Refused>(&*message)) why = refused->reason;
  }
  EXPECT_THAT(why, AllOf(HasSubstr("'0.0.1' on elsewhere"), HasSubstr(" and '")));
  Job& right = agent({"--nnodes", "2", "--rdzv-id", "job", "--rdzv-conf", "is_host=0"}, "true");
  EXPECT_EQ(right.wait(), 0) << right.err();
  EXPECT_EQ(host.wait(), 0) << host.err();
}

TEST_F(NodesTest, AKeyLetsInThoseWhoHaveIt) {
  const testing::ScratchFolder folder;
  const auto key = [&](const std::string& name) {
    const std::string path = folder.file(name);
    Job make({"/bin/sh", "-c", "umask 0; " LOCKSTEP_PROGRAM " secret new > " + path});
    EXPECT_EQ(make.wait(), 0) << make.err();
    struct stat status {};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    return path;
  };
  const std::string right = key("right"), wrong = key("wrong");
  const std::string script = "echo $RANK ${LOCKSTEP_SECRET_FILE:-none} ${PET_SECRET_FILE:-none}";
  const std::vector<std::string> flags{"--nnodes", "2", "--rdzv-conf", "is_host=0", "--secret-file"};
  std::filesystem::create_directory(folder.file("told"));
  Job& host = agent({"--nnodes", "2", "--rdzv-conf", "is_host=1", "-t", "3", "--log-dir", folder.file("told"),
                     "--report", folder.file("told/report")},
                    script, {"LOCKSTEP_SECRET_FILE=" + right});
  const auto with = [&](const std::string& file) -> Job& {
    std::vector<std::string> all = flags;
    all.push_back(file);
    return agent(all, script);
  };
  for (Job* job : {&with(wrong), &agent({"--nnodes", "2", "--rdzv-conf", "is_host=0"}, script)}) {
    EXPECT_EQ(job->wait(), 2);
    EXPECT_THAT(job->err(), AllOf(HasSubstr("does not let this one in"), HasSubstr("--secret-file")));
  }
  Job& last = with(right);
  EXPECT_EQ(last.wait(), 0) << last.err();
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_THAT(host.err(), AllOf(HasSubstr("without the job's key was turned away"), Not(HasSubstr("torchrun"))));
  EXPECT_THAT(lines(), UnorderedElementsAre("[default0]:0 none none", "1 none none"));
  // Nobody tells it.
  std::string digits;
  std::ifstream(right) >> digits;
  EXPECT_EQ(digits.size(), 64u);
  std::string said;
  for (const auto& job : jobs_) said += job->out() + job->err();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.file("told")))
    if (std::ifstream file(entry.path()); entry.is_regular_file())
      said.append(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(said, AllOf(HasSubstr("\"exit_code\""), HasSubstr("0 none none")));
  EXPECT_EQ(said.find(digits), std::string::npos);

  EXPECT_EQ(chmod(right.c_str(), 0640), 0);
  const auto refused = [&](const std::string& file, const std::string& why) {
    Job& job = with(file);
    EXPECT_EQ(job.wait(), 2);
    EXPECT_THAT(job.err(), HasSubstr("--secret-file " + file + why));
  };
  refused(right, " can be read by others: chmod 600");
  refused(folder.file("none"), ": No such file or directory (lockstep secret new > FILE makes one)");
  refused(folder.path(), " is not a regular file");
  std::ofstream(wrong) << "0123";
  refused(wrong, " is not a key of 64 hexadecimal digits");
}

// It would wait until join_timeout, for a connection that is closed without a word may be tried again.
TEST_F(NodesTest, AnAgentWithAKeyIsToldThatTheJobHasNone) {
  const testing::ScratchFolder folder;
  Job make({"/bin/sh", "-c", LOCKSTEP_PROGRAM " secret new > " + folder.file("key")});
  EXPECT_EQ(make.wait(), 0) << make.err();
  Job& host = agent({"--nnodes", "2", "--rdzv-conf", "is_host=1"}, "true");
  while (host.err().find("1 of 2 nodes") == std::string::npos) usleep(10'000);
  for (int i = 0; i < 2; ++i) {
    Job& keyed = agent({"--nnodes", "2", "--rdzv-conf", "is_host=0", "--secret-file", folder.file("key")}, "true");
    EXPECT_EQ(keyed.wait(), 2);
    EXPECT_THAT(keyed.err(), AllOf(HasSubstr("does not let this one in: the other side has not the same key; is "
                                             "--secret-file the same on all nodes")));
  }
  Job& right = agent({"--nnodes", "2", "--rdzv-conf", "is_host=0"}, "true");
  EXPECT_EQ(right.wait(), 0) << right.err();
  EXPECT_EQ(host.wait(), 0) << host.err();
  int told = 0;
  for (const std::string& line : testing::lines(host.err()))
    told += line.find(" with a key was turned away") != line.npos;
  EXPECT_EQ(told, 1) << host.err();
}

// The start of one node does not wait for it.
TEST_F(NodesTest, OpenSslIsLoadedForSeveralNodesWithAKeyOnly) {
  const testing::ScratchFolder folder;
  Job make({"/bin/sh", "-c", LOCKSTEP_PROGRAM " secret new > " + folder.file("key")});
  EXPECT_EQ(make.wait(), 0) << make.err();
  const std::string maps = "grep -q libssl /proc/$PPID/maps && echo loaded || echo not";
  const std::string key = "LOCKSTEP_SECRET_FILE=" + folder.file("key");
  Job one({LOCKSTEP_PROGRAM, "run", "sh", "-c", maps}, {key});
  EXPECT_EQ(one.wait(), 0) << one.err();
  EXPECT_EQ(one.out(), "not\n");
  for (const std::vector<std::string>& variables : {std::vector<std::string>{}, {key}}) {
    Job& a = agent({"--nnodes", "2"}, maps, variables);
    Job& b = agent({"--nnodes", "2"}, maps, variables);
    EXPECT_EQ(a.wait(), 0) << a.err();
    EXPECT_EQ(b.wait(), 0) << b.err();
    const std::string expected = variables.empty() ? "not\nnot\n" : "loaded\nloaded\n";
    EXPECT_EQ(a.out() + b.out(), expected);
  }
}

TEST_F(NodesTest, TheTimeIsUp) {
  Job& alone = agent({"--nnodes", "2", "--rdzv-conf", "join_timeout=0.1"}, "true");
  EXPECT_EQ(alone.wait(), 2);
  EXPECT_THAT(alone.err(), HasSubstr("error: run: the time is up (1 s): 1 of 2 nodes: "));
  Job& nobody = agent({"--nnodes", "2", "--rdzv-conf", "join_timeout=0.1,is_host=0"}, "true");
  EXPECT_EQ(nobody.wait(), 2);
  EXPECT_THAT(nobody.err(), HasSubstr("no agent hosts at " + address_ + ":29400: Connection refused"));
}

// In a network of its own, whose only thousand ports that are not for outgoing connections are held.
TEST_F(NodesTest, WithoutAPortForTheWorkersAllNodesAreToldSo) {
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/python3 on this machine";
  if (const std::string why = testing::no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  const testing::ScratchFolder folder;
  folder.write("hold.py", R"py(
import os, resource, socket, subprocess, sys
open("/proc/sys/net/ipv4/ip_local_port_range", "w").write("1025 64535")
resource.setrlimit(resource.RLIMIT_NOFILE, (1100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = [socket.socket() for _ in range(64536, 65536)]
for port, holder in enumerate(held, 64536): holder.bind(("", port))
sys.exit(subprocess.run(sys.argv[1:]).returncode)
)py");
  folder.write("agents", "lockstep=" LOCKSTEP_PROGRAM R"sh(
agent() {
  exec $lockstep run --nnodes 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 --rdzv-conf is_host=$2 \
    sh -c "echo started" > $1.out 2> $1.err
}
agent a 1 & a=$!
agent b 0 & b=$!
wait $a; echo $?
wait $b; echo $?
cat a.out b.out
)sh");
  Job job(testing::in_namespace(folder, "ip link set lo up; exec /usr/bin/python3 hold.py sh agents"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  const std::string a = testing::text_of(folder.file("a.err")), b = testing::text_of(folder.file("b.err"));
  EXPECT_EQ(job.out(), "2\n2\n") << a << b;
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  const std::string why =
      "lockstep: error: run: on " + std::string(name) + ": no free port for MASTER_PORT: 200 were tried beside 1025 to";
  for (const std::string& said : {a, b}) EXPECT_THAT(said, AllOf(HasSubstr(why), Not(HasSubstr("is lost"))));
  EXPECT_TRUE(job.nothing_left());
}

}  // namespace
}  // namespace lockstep
