// `lockstep doctor`: what it finds is this machine's, and its exit code says whether anything is wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/job.h"

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

TEST(DoctorCommand, Refusals) {
  expect_doctor_refuses({"--endpoint", "node1:x"}, "doctor: --endpoint 'node1:x' is not HOST or HOST:PORT");
  expect_doctor_refuses({"--jsn"}, "did you mean '--json'?");
  expect_doctor_refuses({"node1"}, "takes no arguments: 'node1'");
}

}  // namespace
}  // namespace lockstep
