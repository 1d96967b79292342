// `lockstep env`: the facts are the machine's, in both forms, and nothing is needed for them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/cores.h"
#include "lockstep/launch/machine/facts.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::Job;
using ::testing::Not;
using testing::ScratchFolder;

std::string env(std::vector<std::string> arguments, const std::vector<std::string>& variables = {},
                const std::string& program = LOCKSTEP_PROGRAM) {
  arguments.insert(arguments.begin(), {program, "env"});
  Job job(arguments, variables);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
  EXPECT_TRUE(job.nothing_left());
  return job.out();
}

void expect_refused(const std::string& argument, const std::string& words) {
  Job job({LOCKSTEP_PROGRAM, "env", argument});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_EQ(job.out(), "");
  EXPECT_EQ(testing::lines(job.err()).size(), 1u) << job.err();
  EXPECT_THAT(job.err(), HasSubstr(words));
}

TEST(Env, TheFactsAreTheMachines) {
  const json facts = json::parse(env({"--json"}));
  utsname kernel{};
  uname(&kernel);
  EXPECT_THAT(facts["versions"]["kernel"], HasSubstr(kernel.release));
  const std::string cpuinfo = testing::read_file("/proc/cpuinfo");
  const std::string meminfo = testing::read_file("/proc/meminfo");
  EXPECT_EQ(facts["processor"]["model"], launch::line_value(cpuinfo, "model name"));
  EXPECT_EQ(facts["processor"]["instruction sets"], launch::instruction_sets(cpuinfo));
  EXPECT_EQ(facts["processor"]["cores online"], std::to_string(sysconf(_SC_NPROCESSORS_ONLN)));
  EXPECT_EQ(facts["processor"]["cores usable"], std::to_string(base::usable_cores()));
  EXPECT_EQ(facts["memory"]["total"], launch::size_of_line(meminfo, "MemTotal"));
  EXPECT_EQ(facts["memory"]["huge pages reserved"], launch::line_value(meminfo, "HugePages_Total"));
  EXPECT_THAT(facts["memory"]["stores, 32 MiB"].get<std::string>(), HasSubstr(" faster: "));
  EXPECT_EQ(facts["GPUs"].contains("driver"), std::filesystem::exists("/proc/driver/nvidia"));
  EXPECT_TRUE(facts["limits"].contains("open files"));
}

// Only what moves between two calls may differ.
TEST(Env, TextAndJsonSayTheSame) {
  const std::string text = env({});
  const json facts = json::parse(env({"--json"}));
  for (const auto& [title, section] : facts.items()) {
    EXPECT_THAT(text, HasSubstr(title + "\n  "));
    for (const auto& [name, value] : section.items()) {
      const bool moves = title == "memory" || title == "processor";
      const std::string line = "  " + name + ": " + (moves ? "" : value.get<std::string>() + "\n");
      EXPECT_THAT(text, HasSubstr(line));
    }
  }
}

TEST(Env, FollowsTheAffinity) {
  const json facts = json::parse([] {
    Job job({"/usr/bin/taskset", "-c", "0", LOCKSTEP_PROGRAM, "env", "--json"});
    EXPECT_EQ(job.wait(), 0) << job.err();
    return job.out();
  }());
  EXPECT_EQ(facts["processor"]["cores by affinity"], "1");
  EXPECT_EQ(facts["processor"]["cores usable"], "1");
}

TEST(Env, VariablesAndSecrets) {
  const std::string text = env({}, {"NCCL_DEBUG=INFO", "LOCKSTEP_JOB_TOKEN=abc123", "UNRELATED=xyz"});
  EXPECT_THAT(text, HasSubstr("  NCCL_DEBUG: INFO\n"));
  EXPECT_THAT(text, HasSubstr("  LOCKSTEP_JOB_TOKEN: (hidden)\n"));
  EXPECT_THAT(text, Not(HasSubstr("abc123")));
  EXPECT_THAT(text, Not(HasSubstr("UNRELATED")));
}

TEST(Env, ProgramsInPath) {
  const ScratchFolder folder;
  std::filesystem::permissions(folder.write("torchrun", "#!/bin/sh\n"), std::filesystem::perms::owner_all);
  const json facts = json::parse(env({"--json"}, {"PATH=" + folder.path()}));
  EXPECT_EQ(facts["programs in PATH"]["torchrun"], folder.file("torchrun"));
  EXPECT_EQ(facts["programs in PATH"]["srun"], "none");
}

// A copy of the program alone in a folder, with a trainer of the test's own or none.
class EnvElsewhere : public ::testing::Test {
 protected:
  EnvElsewhere() { std::filesystem::copy_file(LOCKSTEP_PROGRAM, folder_.file("lockstep")); }
  void put_trainer(const std::string& script) {
    std::filesystem::permissions(folder_.write("lockstep-trainer", script), std::filesystem::perms::owner_all);
  }
  json libtorch() { return json::parse(env({"--json"}, {}, folder_.file("lockstep")))["libtorch"]; }

  const ScratchFolder folder_;
};

TEST_F(EnvElsewhere, WithoutATrainer) { EXPECT_EQ(libtorch(), (json{{"trainer", "not found beside lockstep"}})); }

TEST_F(EnvElsewhere, TheLoadersErrorIsShown) {
  put_trainer("#!/bin/sh\necho 'x: error while loading shared libraries: libtorch_cpu.so: no such file' >&2; exit 127");
  EXPECT_EQ(libtorch()["libtorch"],
            "unknown (lockstep-trainer: exit code 127: x: error while loading shared libraries: libtorch_cpu.so: "
            "no such file)");
}

TEST_F(EnvElsewhere, ATrainerThatHangsIsKilled) {
  put_trainer("#!/bin/sh\nexec sleep 600\n");
  EXPECT_EQ(libtorch()["libtorch"], "unknown (no answer within 5000 ms)");
}

TEST_F(EnvElsewhere, ATrainerThatCannotBeExecuted) {
  folder_.write("lockstep-trainer", "");
  EXPECT_EQ(libtorch()["libtorch"], "unknown (Permission denied)");
}

TEST(Env, Refusals) {
  expect_refused("--jsn", "did you mean '--json'?");
  expect_refused("json", "takes no arguments: 'json'");
  EXPECT_THAT(env({"--help"}), HasSubstr("usage: lockstep env"));
}

}  // namespace
}  // namespace lockstep
