// `lockstep doctor`: what it finds is this machine's, and its exit code says whether anything is wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/multiprocess/two_nodes.h"
#include "tests/support/job.h"
#include "tests/support/own_sshd.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::Job;

struct Told {
  int code = -1;
  json report;
};

// The report of `lockstep doctor --json` with these arguments, in a shell that says `before` first.
Told doctor(const std::string& arguments, const std::string& before = "") {
  Job job({"/bin/sh", "-c", before + "exec " + LOCKSTEP_PROGRAM + " doctor --json " + arguments});
  Told told{.code = job.wait()};
  EXPECT_EQ(job.err(), "");
  EXPECT_TRUE(job.nothing_left());
  told.report = json::parse(job.out());
  EXPECT_EQ(told.code, told.report["wrong"] == 0 ? 0 : 1);
  return told;
}

json finding(const json& examined, const std::string& what) {
  for (const json& one : examined["findings"])
    if (one["what"].get<std::string>().starts_with(what)) return one;
  ADD_FAILURE() << "nothing of " << what << " in " << examined.dump(1);
  return {};
}

void expect_doctor_refuses(std::vector<std::string> arguments, const std::string& words) {
  arguments.insert(arguments.begin(), {LOCKSTEP_PROGRAM, "doctor"});
  Job job(arguments);
  EXPECT_EQ(job.wait(), 2);
  EXPECT_EQ(job.out(), "");
  EXPECT_EQ(testing::lines(job.err()).size(), 1U) << job.err();
  EXPECT_THAT(job.err(), HasSubstr(words));
}

TEST(DoctorCommand, FindsWhatIsWrongHere) {
  // A process whose launcher has ended, too few descriptors, a name that nobody knows.
  Job left({"/bin/sleep", "600"}, {"LOCKSTEP_SEGMENT=/proc/2147483646/fd/5"});
  const Told told = doctor("--endpoint no-such-host.invalid:29500", "ulimit -Sn 200; ");
  EXPECT_EQ(told.code, 1);
  const json here = told.report["examined"][0];
  EXPECT_EQ(finding(here, "open files")["level"], "wrong");
  EXPECT_THAT(finding(here, "endpoint")["value"].get<std::string>(), HasSubstr("does not resolve"));
  EXPECT_THAT(here.dump(), HasSubstr("process " + std::to_string(left.pid()) + " (sleep)"));
  left.signal(SIGKILL);
  left.wait();
}

TEST(DoctorCommand, TextSaysTheSame) {
  Job job({LOCKSTEP_PROGRAM, "doctor", "--endpoint", "127.0.0.1:0"});
  const int code = job.wait();
  EXPECT_EQ(job.err(), "");
  EXPECT_THAT(job.out(), HasSubstr("127.0.0.1 by lo, here, port any is free\n"));
  const std::vector<std::string> lines = testing::lines(job.out());
  EXPECT_EQ(code, lines.back().starts_with("nothing wrong, ") ? 0 : 1) << lines.back();
}

// A remote shell that runs the command here, but on the host "unknown", and says something else first.
class DoctorHosts : public ::testing::Test {
 protected:
  DoctorHosts() {
    std::filesystem::permissions(folder_.write("shell",
                                               "#!/bin/sh\n"
                                               "[ $1 = unknown ] && { echo 'no such host' >&2; exit 255; }\n"
                                               "shift; echo Welcome; exec sh -c \"$*\"\n"),
                                 std::filesystem::perms::owner_all);
  }
  const testing::ScratchFolder folder_;
};

TEST_F(DoctorHosts, AreExaminedWithTheWaysBetweenThem) {
  const Told told = doctor("--hosts 127.0.0.1,127.0.0.2,unknown --remote-shell " + folder_.file("shell"));
  const json& all = told.report["examined"];
  ASSERT_EQ(all.size(), 6U) << all.dump(1);
  EXPECT_EQ(all[0]["title"], "127.0.0.1");
  EXPECT_EQ(finding(all[0], "kernel")["level"], "good");
  EXPECT_EQ(finding(all[1], "same as")["value"], "127.0.0.1: version, commit, libtorch, processor type");
  EXPECT_EQ(finding(all[1], "clock offset")["level"], "good");
  EXPECT_EQ(finding(all[2], "remote shell")["value"], "it ended: no such host");
  EXPECT_EQ(told.code, 1);
  EXPECT_EQ(all[3]["title"], "127.0.0.1 -> 127.0.0.2");
  EXPECT_EQ(all[4]["title"], "127.0.0.2 -> 127.0.0.1");
  for (const json& way : {all[3], all[4]}) {
    EXPECT_THAT(finding(way, "round trip")["value"].get<std::string>(), HasSubstr(" ms"));
    EXPECT_THAT(finding(way, "bandwidth")["value"].get<std::string>(), HasSubstr(" MB/s"));
  }
}

// Two network namespaces with a cable between them: each host has an address that the other one does not have.
constexpr const char* kTwoHosts = R"sh(set -e
ip link set lo up
unshare --net sleep 60 & other=$!
trap "kill $other" EXIT
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do :; done
there="nsenter --target $other --net"
ip link add v0 type veth peer name v1
ip link set v1 netns $other
ip addr add 10.9.0.1/24 dev v0
ip link set v0 up
$there ip addr add 10.9.0.2/24 dev v1
$there ip link set v1 up
cat > "$1/enter" <<END
#!/bin/sh
host=\$1; shift
[ \$host = 10.9.0.2 ] && exec $there sh -c "\$*"
exec sh -c "\$*"
END
chmod +x "$1/enter"
"$2" doctor --json --hosts 10.9.0.1,10.9.0.2 --remote-shell "$1/enter" || true
)sh";

TEST_F(DoctorHosts, HaveTheirOwnAddressesAndTheWayBetween) {
  Job try_it({"/bin/sh", "-c", "unshare --net ip link set lo up && unshare --net ip link add v0 type veth"});
  if (try_it.wait() != 0) GTEST_SKIP() << "network namespaces cannot be made here: " << try_it.err();
  folder_.write("two_hosts", kTwoHosts);
  Job job({"/usr/bin/unshare", "--net", "/bin/sh", folder_.file("two_hosts"), folder_.path(), LOCKSTEP_PROGRAM});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_TRUE(job.nothing_left());
  const json all = json::parse(job.out())["examined"];
  ASSERT_EQ(all.size(), 5U) << all.dump(1);
  EXPECT_THAT(finding(all[0], "interfaces")["value"].get<std::string>(), HasSubstr("v0 10.9.0.1"));
  EXPECT_THAT(finding(all[1], "interfaces")["value"].get<std::string>(), HasSubstr("v1 10.9.0.2"));
  EXPECT_THAT(finding(all[2], "bandwidth")["value"].get<std::string>(), HasSubstr("10.9.0.2, "));
  EXPECT_THAT(finding(all[3], "bandwidth")["value"].get<std::string>(), HasSubstr("10.9.0.1, "));
}

// By real ssh, which starts an sshd of its own for each host.
TEST_F(DoctorHosts, AreReachedThroughAnSshdOfTheTest) {
  if (const std::string why = testing::no_sshd(); !why.empty()) GTEST_SKIP() << why;
  Job job(testing::with_sshd(folder_, {LOCKSTEP_PROGRAM, "doctor", "--json", "--hosts", "127.0.0.1,127.0.0.2",
                                       "--remote-shell", testing::own_ssh(folder_) + " -o SendEnv=TEST_JOB_MARK"}));
  const int code = job.wait();
  EXPECT_TRUE(job.nothing_left(std::chrono::seconds(10)));
  const json report = json::parse(job.out(), nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << job.out() << job.err();
  EXPECT_EQ(code, report["wrong"] == 0 ? 0 : 1) << job.err();
  const json& all = report["examined"];
  ASSERT_EQ(all.size(), 5U) << all.dump(1) << testing::read_file(folder_.file("sshd_log"));
  EXPECT_EQ(all[0]["title"], "127.0.0.1");
  EXPECT_EQ(finding(all[0], "kernel")["level"], "good");
  EXPECT_EQ(finding(all[1], "same as")["value"], "127.0.0.1: version, commit, libtorch, processor type");
  EXPECT_EQ(all[2]["title"], "127.0.0.1 -> 127.0.0.2");
  EXPECT_EQ(all[3]["title"], "127.0.0.2 -> 127.0.0.1");
  for (const json& way : {all[2], all[3]}) {
    EXPECT_THAT(finding(way, "round trip")["value"].get<std::string>(), HasSubstr(" ms"));
    EXPECT_THAT(finding(way, "bandwidth")["value"].get<std::string>(), HasSubstr(" MB/s"));
  }
}

// The same machine twice.
TEST(DoctorOfNodes, MeetAtTheEndpoint) {
  const std::string address =
      "127.77." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(1 + getpid() % 250);
  const std::vector<std::string> command{LOCKSTEP_PROGRAM, "doctor", "--nnodes", "2", "--endpoint", address + ":29400"};
  std::vector<std::string> with_json = command;
  with_json.push_back("--json");
  Job first(with_json);
  Job second(command);
  const int code = first.wait();
  EXPECT_EQ(second.wait(), code) << second.err();
  EXPECT_TRUE(first.nothing_left() && second.nothing_left());
  // Who of the two was first hosts.
  const bool json_is_first = first.out() != "";
  const std::string printed = json_is_first ? first.out() : second.out();
  if (json_is_first) {
    EXPECT_THAT(second.out(), HasSubstr("the findings are printed on node 0, "));
    const json all = json::parse(printed)["examined"];
    ASSERT_EQ(all.size(), 5U) << all.dump(1);
    EXPECT_EQ(code, json::parse(printed)["wrong"] == 0 ? 0 : 1);
    EXPECT_THAT(all[0]["title"].get<std::string>(), ::testing::StartsWith("node 0 ("));
    EXPECT_THAT(finding(all[1], "same as")["value"].get<std::string>(), HasSubstr("version, commit, libtorch"));
    EXPECT_THAT(finding(all[3], "bandwidth")["value"].get<std::string>(), HasSubstr(" MB/s"));
  } else {
    EXPECT_THAT(printed, HasSubstr("bandwidth"));
  }
}

// Two machines with a wire between them, with one key and with two.
TEST(DoctorOfNodes, OfTwoNetworksMeetByAKey) {
  if (const std::string why = testing::no_namespaces(); !why.empty()) GTEST_SKIP() << why;
  const testing::ScratchFolder folder;
  Job job(testing::in_namespace(folder, testing::kTwoNodes + std::string("lockstep=") + LOCKSTEP_PROGRAM + R"sh(
$lockstep secret new > job.key
$lockstep secret new > other.key
doctor="$lockstep doctor --nnodes 2 --endpoint 10.77.0.1:29400"
$in_b $doctor --timeout 30 --secret-file job.key > b.out 2> b.err & b=$!
$doctor --timeout 30 --secret-file job.key --json > a.out 2> a.err
echo $? > codes; wait $b; echo $? >> codes
$in_b $doctor --timeout 30 --secret-file other.key > c.out 2> c.err & c=$!
$doctor --timeout 5 --secret-file job.key > d.out 2> d.err
echo $? >> codes; wait $c; echo $? >> codes
kill $ns
)sh"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_TRUE(job.nothing_left());
  const auto told = [&](const char* name) { return testing::text_of(folder.file(name)); };
  const json report = json::parse(told("a.out"), nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << told("a.out") << told("a.err");
  const json& all = report["examined"];
  ASSERT_EQ(all.size(), 5U) << all.dump(1);
  EXPECT_THAT(finding(all[0], "interfaces")["value"].get<std::string>(), HasSubstr("va 10.77.0.1"));
  EXPECT_THAT(finding(all[1], "interfaces")["value"].get<std::string>(), HasSubstr("vb 10.77.0.2"));
  EXPECT_THAT(finding(all[2], "bandwidth")["value"].get<std::string>(), HasSubstr("10.77.0.2, "));
  EXPECT_THAT(finding(all[3], "bandwidth")["value"].get<std::string>(), HasSubstr("10.77.0.1, "));
  EXPECT_THAT(told("b.out"), HasSubstr("the findings are printed on node 0, "));
  const std::string code = report["wrong"] == 0 ? "0\n" : "1\n";
  EXPECT_EQ(told("codes"), code + code + "2\n2\n") << told("a.err") << told("b.err");
  EXPECT_THAT(told("c.err"), ::testing::AllOf(HasSubstr("does not let this one in"), HasSubstr("--secret-file")));
  EXPECT_THAT(told("d.err"), HasSubstr("1 of 2 nodes"));
  EXPECT_EQ(told("c.out") + told("d.out"), "");
}

TEST(DoctorOfNodes, SaysWhoIsMissing) {
  const std::string address =
      "127.78." + std::to_string(getpid() / 250 % 250) + "." + std::to_string(1 + getpid() % 250);
  Job job({LOCKSTEP_PROGRAM, "doctor", "--nnodes", "2", "--endpoint", address, "--timeout", "0.3"});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_EQ(job.out(), "");
  EXPECT_THAT(job.err(), HasSubstr("1 of 2 nodes"));
}

// 198.51.100.1 is for documentation: nobody's.
TEST_F(DoctorHosts, AnAddressThatIsNotThereIsNamed) {
  folder_.write("hosts", "127.0.0.1 slots=2\n198.51.100.1\n");
  const Told told = doctor("--hosts " + folder_.file("hosts") + " --remote-shell " + folder_.file("shell"));
  const json& all = told.report["examined"];
  ASSERT_EQ(all.size(), 5U) << all.dump(1);
  EXPECT_EQ(finding(all[2], "connection")["level"], "wrong");
  EXPECT_THAT(finding(all[2], "connection")["value"].get<std::string>(),
              HasSubstr("'198.51.100.1' is 198.51.100.1 there, which cannot be listened at"));
  EXPECT_THAT(finding(all[3], "round trip")["value"].get<std::string>(), HasSubstr("127.0.0.1, "));
}

TEST(DoctorCommand, Refusals) {
  expect_doctor_refuses({"--hosts", "n1,n2,n1"}, "doctor: --hosts: 'n1' is there twice");
  expect_doctor_refuses({"--hosts", "./no-such-file"}, "the file './no-such-file' cannot be read");
  expect_doctor_refuses({"--hosts", "n1", "--remote-shell", " "}, "--remote-shell");
  expect_doctor_refuses({"--hosts", "n1", "--timeout", "0"}, "--timeout");
  expect_doctor_refuses({"--endpoint", "node1:x"}, "doctor: --endpoint 'node1:x' is not HOST or HOST:PORT");
  expect_doctor_refuses({"--nnodes", "1:2"}, "--nnodes 1:2 is neither a number from 2 nor auto");
  expect_doctor_refuses({"--nnodes", "2"}, "--nnodes 2 needs --endpoint");
  expect_doctor_refuses({"--nnodes", "2", "--endpoint", "h", "--hosts", "a,b"}, "give one of the two");
  expect_doctor_refuses({"--insecure"}, "doctor: --insecure needs --nnodes");
  expect_doctor_refuses({"--jsn"}, "did you mean '--json'?");
  expect_doctor_refuses({"node1"}, "takes no arguments: 'node1'");
}

}  // namespace
}  // namespace lockstep
