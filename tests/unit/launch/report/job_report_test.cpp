#include "lockstep/launch/report/job_report.h"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

namespace lockstep::launch {
namespace {

using Json = nlohmann::json;

AttemptRecord failed_attempt() {
  AttemptRecord attempt{.restart_count = 1, .master_port = 4711, .started = 100, .seconds = 2.5};
  attempt.ends = {{.rank = 1, .pid = 11, .signal = SIGKILL, .when = 101},
                  {.rank = 0, .pid = 10, .exit_code = 1, .when = 102}};
  attempt.first = first_failure(attempt.ends, std::nullopt);
  attempt.first->error = WorkerError{.message = "bad \xff bytes", .traceback = ""};
  attempt.where = Whereabouts{.step = 17, .phase = "update"};
  attempt.log = {{.file = "/l/stderr.log", .lines = {"one", "two"}}};
  attempt.next = "finish";
  return attempt;
}

TEST(JobReport, TellsWhatHappened) {
  JobRecord job{.version = "1", .run_id = "id", .host = "node7", .outcome = "failed", .exit_code = 137};
  job.attempts = {failed_attempt()};
  const Json json = Json::parse(to_json(job, {.command = {"p", "x"}, .workers = 2, .max_restarts = 1}));
  EXPECT_EQ(json["outcome"], "failed");
  EXPECT_EQ(json["exit_code"], 137);
  EXPECT_EQ(json["command"], Json({"p", "x"}));
  EXPECT_TRUE(json["stop_signal"].is_null());
  const Json& attempt = json["attempts"][0];
  EXPECT_EQ(attempt["restart_count"], 1);
  EXPECT_EQ(attempt["ends"][0]["signal"], "SIGKILL");
  EXPECT_TRUE(attempt["ends"][0]["exit_code"].is_null());
  EXPECT_EQ(attempt["ends"][1]["seconds"], 2.0);
  const Json& failure = attempt["first_failure"];
  EXPECT_EQ(failure["rank"], 1);
  EXPECT_EQ(failure["host"], "node7");
  EXPECT_EQ(failure["pid"], 11);
  EXPECT_EQ(failure["step"], 17);
  EXPECT_EQ(failure["phase"], "update");
  EXPECT_EQ(failure["message"], "bad \xef\xbf\xbd bytes");
  EXPECT_EQ(failure["followers"], 1);
  EXPECT_EQ(failure["log"][0]["last_lines"], Json({"one", "two"}));
}

TEST(JobReport, SuccessHasNoFailure) {
  JobRecord job{.outcome = "succeeded"};
  job.attempts = {AttemptRecord{.next = "finish"}};
  const Json json = Json::parse(to_json(job, {}));
  EXPECT_TRUE(json["attempts"][0]["first_failure"].is_null());
  EXPECT_EQ(json["exit_code"], 0);
}

}  // namespace
}  // namespace lockstep::launch
