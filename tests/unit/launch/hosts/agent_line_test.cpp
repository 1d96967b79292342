// What the remote shells of --hosts are given.

#include "lockstep/launch/hosts/agent_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/usage_error.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

HostsJob job_of(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  const Parsed parsed = parse_options(Dialect::run, arguments, [](const char*) { return nullptr; });
  HostsJob job = hosts_job("run", arguments, parsed.options, environment,
                           [](const std::string&) { return std::optional<std::string>(); });
  job.program = "/p/lockstep";
  job.folder = "/my folder";
  return job;
}

TEST(AgentLine, IsTheSameLineWithTheHostsPartBehindIt) {
  HostsJob job = job_of({"--hosts=h1:4,h2", "--max_restarts", "2", "--", "prog", "--", "-x", "it's"});
  job.endpoint = endpoint_on(job.hosts, 7);
  job.run_id = "id";
  const std::string before =
      "cd '/my folder' && exec 'env' '/p/lockstep' 'run' '--hosts=h1:4,h2' '--max_restarts' '2' '--by-starter' "
      "'--nnodes' '2' '--rdzv-id' 'id' '--rdzv-endpoint' 'h1:7' '--node-rank' ";
  const std::string program = "'--' 'prog' '--' '-x' 'it'\\''s'";
  EXPECT_THAT(agent_command(job, 0), ElementsAre("ssh", "h1", before + "'0' '-n' '4' " + program));
  EXPECT_THAT(agent_command(job, 1), ElementsAre("ssh", "h2", before + "'1' " + program));
}

TEST(AgentLine, WithoutDashesTheProgramBeginsAtTheFirstWordThatIsNoFlag) {
  EXPECT_THAT(job_of({"--hosts", "h1", "prog", "--hosts", "x"}).options, ElementsAre("run", "--hosts", "h1"));
  EXPECT_THAT(job_of({"--hosts", "h1", "--", "--prog"}).typed, ElementsAre("--prog"));
}

TEST(AgentLine, OneHostMeetsNobodyAndAnAddressOfIPv6HasBrackets) {
  HostsJob job = job_of({"--hosts", "[::1]:2", "--remote-shell", "rsh -k x", "prog"});
  EXPECT_EQ(endpoint_on(job.hosts, 80), "[::1]:80");
  job.folder.clear();
  EXPECT_THAT(agent_command(job, 0),
              ElementsAre("rsh", "-k", "x", "::1",
                          "exec 'env' '/p/lockstep' 'run' '--hosts' '[::1]:2' '--remote-shell' 'rsh -k x' "
                          "'--by-starter' '--nnodes' '1' '--rdzv-id' '' '-n' '2' '--' 'prog'"));
}

TEST(AgentLine, WhichVariablesTravel) {
  const Environment environment{"A=1 2", "B=", "AB=3", "PET_ROLE=r", "PET_HOSTS=h", "PET_SECRET_FILE=s"};
  EXPECT_THAT(job_of({"--hosts", "h", "prog"}, environment).variables, ElementsAre("PET_ROLE=r"));
  EXPECT_THAT(job_of({"--hosts", "h", "-x", "A", "--export", "B", "-x", "C=4=5", "prog"}, environment).variables,
              ElementsAre("PET_ROLE=r", "A=1 2", "B=", "C=4=5"));
  EXPECT_THAT(job_of({"--hosts", "h", "prog"}).variables, IsEmpty());
  const Environment conf{"PET_RDZV_CONF=timeout=3"};
  EXPECT_THAT(job_of({"--hosts", "h", "prog"}, conf).variables, ElementsAre("PET_RDZV_CONF=timeout=3"));
  const std::vector<std::string> discovers{"--host-discovery-script", "s", "--nnodes", "1:2", "prog"};
  EXPECT_THAT(job_of(discovers, conf).variables, IsEmpty());
  EXPECT_THAT(testing::usage_error([&] {
                job_of({"--hosts", "h", "-x", "AC", "prog"}, environment);
              }),
              HasSubstr("-x AC: there is no such variable here"));
  for (const char* wrong : {"=1", "A B=1", ""})
    EXPECT_THAT(testing::usage_error([&] {
                  job_of({"--hosts", "h", "-x", wrong, "prog"}, environment);
                }),
                HasSubstr("is not NAME or NAME=VALUE"));
}

}  // namespace
}  // namespace lockstep::launch
