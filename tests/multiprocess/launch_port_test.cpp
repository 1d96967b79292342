// MASTER_PORT where somebody else has it, with the real launcher.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/job.h"
#include "tests/support/listener.h"
#include "tests/support/reported_job.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using testing::Job;
using testing::Listener;

class Port : public testing::ReportedJob {};

TEST_F(Port, IsInUse) {
  const Listener listener;
  const std::string port = std::to_string(listener.port());
  Job job(shell({"-n", "2", "--master-port", port}, "echo started"));
  EXPECT_EQ(job.wait(), 2);
  const Json report = written_report();
  EXPECT_EQ(report["outcome"], "not started");
  EXPECT_THAT(std::string(report["start_failure"]), HasSubstr(port));
  EXPECT_EQ(job.out(), "");
  EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
}

// In a network of its own, whose only thousand ports that are not for outgoing connections are held.
TEST_F(Port, IsNowhereFree) {
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/python3 on this machine";
  const std::vector<std::string> alone{"/usr/bin/unshare", "--user", "--map-root-user", "--net"};
  Job trial({alone[0], alone[1], alone[2], alone[3], "/bin/true"});
  if (trial.wait() != 0) GTEST_SKIP() << "no network namespaces here: " << trial.err();
  const std::string script = folder_.write("hold.py", R"py(
import os, resource, socket, subprocess, sys
open("/proc/sys/net/ipv4/ip_local_port_range", "w").write("1025 64535")
resource.setrlimit(resource.RLIMIT_NOFILE, (1100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = [socket.socket() for _ in range(64536, 65536)]
for port, holder in enumerate(held, 64536): holder.bind(("", port))
sys.exit(subprocess.run(sys.argv[1:]).returncode)
)py");
  std::vector<std::string> command = alone;
  command.insert(command.end(), {"/usr/bin/python3", script});
  for (const std::string& word : shell({"-n", "2"}, "echo started")) command.push_back(word);
  Job job(command);
  EXPECT_EQ(job.wait(), 2);
  EXPECT_EQ(job.out(), "");
  EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("no free port for MASTER_PORT: 200 were tried beside 1025 to 64535"));
}

TEST_F(Port, IsTakenBetweenProbeAndBind) {
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/python3 on this machine";
  // A stranger, this test, takes the port first; rank 0 then cannot bind it. The second attempt has another
  // port, and costs no restart.
  const std::string script = folder_.write("bind.py", R"py(
import os, socket, sys, time
port = int(os.environ["MASTER_PORT"])
if not os.path.exists(sys.argv[1] + ".taken"):
    open(sys.argv[1] + ".new", "w").write(str(port))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    while not os.path.exists(sys.argv[1] + ".taken"): time.sleep(0.01)
socket.create_server(("127.0.0.1", port))
print("bound", os.environ["TORCHELASTIC_RESTART_COUNT"])
)py");
  const std::string marker = folder_.file("marker");
  Job job({LOCKSTEP_PROGRAM, "run", "--report", report_file(), script, marker}, {"PATH=/usr/bin:/bin"});
  testing::wait_until([&] { return std::filesystem::exists(marker); });
  const Listener stranger(std::stoi(testing::read_file(marker)));
  std::ofstream(marker + ".taken") << "yes";
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "bound 0\n");
  EXPECT_THAT(job.err(), HasSubstr("another program has taken MASTER_PORT"));
  const Json report = written_report();
  EXPECT_EQ(report["attempts"].size(), 2u);
  EXPECT_EQ(report["attempts"][0]["next"], "new_port");
  EXPECT_NE(report["attempts"][0]["master_port"], report["attempts"][1]["master_port"]);
}

TEST_F(Port, IsHeldByADaemonOfOurOwn) {
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/python3 on this machine";
  const std::string script = folder_.write("daemon.py", R"py(
import os, subprocess, sys
daemon = subprocess.Popen([sys.executable, "-c",
    "import os, socket, time; s = socket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT'])));"
    "print('up', flush=True); time.sleep(60)"], start_new_session=True, stdout=subprocess.PIPE)
daemon.stdout.readline()
open(sys.argv[1], "a").write("%d\n" % daemon.pid)
sys.exit(7)
)py");
  Job job({LOCKSTEP_PROGRAM, "run", "--report", report_file(), "--max-restarts", "0", script, folder_.file("pids")},
          {"PATH=/usr/bin:/bin"});
  EXPECT_EQ(job.wait(), 7) << job.err();
  EXPECT_EQ(written_report()["attempts"].size(), 1u);
  for (const std::string& pid : testing::lines(testing::read_file(folder_.file("pids")))) kill(std::stoi(pid), SIGKILL);
}

TEST_F(Port, ARestartThatCannotBeKeepsTheFirstReason) {
  // What the first attempt leaves behind listens at the port that the user named.
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/python3 on this machine";
  std::string port;
  { port = std::to_string(Listener().port()); }
  const std::string pid_file = folder_.file("pid");
  Job job(shell({"--max-restarts", "1", "--master-port", port},
                "setsid /usr/bin/python3 -c \"import os, socket, time; s = socket.create_server(('127.0.0.1', " + port +
                    ")); open('" + pid_file +
                    "', 'w').write(str(os.getpid())); time.sleep(60)\" & "
                    "while [ ! -s " +
                    pid_file + " ]; do sleep 0.01; done; exit 7"));
  EXPECT_EQ(job.wait(), 7) << job.err();
  kill(std::stoi(testing::read_file(pid_file)), SIGKILL);
  const Json report = written_report();
  EXPECT_EQ(report["outcome"], "failed");
  EXPECT_THAT(std::string(report["start_failure"]), HasSubstr(port));
}

}  // namespace
}  // namespace lockstep
