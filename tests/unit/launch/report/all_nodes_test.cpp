#include "lockstep/launch/report/all_nodes.h"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/launch/report/job_report.h"

namespace lockstep::launch {
namespace {

using Json = nlohmann::json;

struct Tried {
  std::int64_t generation = 1;
  std::vector<End> ends;
  std::string elsewhere;  // what is said of another node's failure
};

// Of a node whose workers are first_rank and first_rank + 1.
std::string node_report(const std::string& host, int first_rank, const std::vector<Tried>& attempts) {
  Plan plan{.workers = 2, .node = {.rank = first_rank / 2, .nodes = 2, .first_rank = first_rank}};
  plan.nodes.emplace();
  JobRecord job{.host = host, .outcome = "failed", .exit_code = 7};
  for (const Tried& tried : attempts) {
    AttemptRecord attempt{.generation = tried.generation, .node = plan.node, .started = 100, .ends = tried.ends};
    attempt.first_elsewhere = tried.elsewhere;
    if (tried.elsewhere.empty()) attempt.first = first_failure(attempt.ends, std::nullopt);
    job.attempts.push_back(attempt);
  }
  return to_json(job, plan);
}

End end_of(int rank, int exit_code) { return {.rank = rank, .pid = 10 + rank, .exit_code = exit_code, .when = 101}; }

std::string merged_with(const std::optional<std::string>& text, bool left = false) {
  const std::string own = node_report(
      "h0", 0, {{1, {end_of(0, 0), end_of(1, 1)}, ""}, {3, {end_of(0, 1), end_of(1, 1)}, "rank 3 failed\n"}});
  return report_of_all(own, {{.host = "h1", .rank = 1, .workers = 2, .left = left, .text = text}});
}

TEST(ReportOfAllNodes, HasTheEndsOfAllAndTheFirstFailureWhereverItWas) {
  const Json job = Json::parse(merged_with(
      node_report("h1", 2, {{2, {end_of(0, 9)}, ""}, {3, {end_of(1, 7), end_of(0, 1)}, ""}, {4, {end_of(0, 8)}, ""}})));
  EXPECT_EQ(job["workers"], 4);
  ASSERT_EQ(job["attempts"].size(), 2u);
  // The other was not in the first one, and it began two without us that were none.
  const Json& alone = job["attempts"][0];
  EXPECT_EQ(alone["ends"].size(), 2u);
  EXPECT_EQ(alone["first_failure"]["rank"], 1);
  const Json& both = job["attempts"][1];
  ASSERT_EQ(both["ends"].size(), 4u);
  EXPECT_EQ(both["ends"][0]["host"], "h0");
  EXPECT_EQ(both["ends"][2]["host"], "h1");
  EXPECT_EQ(both["ends"][2]["rank"], 3);
  EXPECT_EQ(both["first_failure"]["rank"], 3);
  EXPECT_EQ(both["first_failure"]["host"], "h1");
  EXPECT_TRUE(both["first_failure_elsewhere"].is_null());
  ASSERT_EQ(job["nodes"].size(), 2u);
  EXPECT_EQ(job["nodes"][0]["host"], "h0");
  EXPECT_EQ(job["nodes"][1]["exit_code"], 7);
  EXPECT_TRUE(job["nodes"][1]["reported"]);
}

TEST(ReportOfAllNodes, ANodeThatWentIsThereWithoutItsEnds) {
  const Json job = Json::parse(merged_with(std::nullopt, /*left=*/true));
  EXPECT_EQ(job["workers"], 2);
  EXPECT_EQ(job["attempts"][1]["first_failure_elsewhere"], "rank 3 failed\n");
  EXPECT_TRUE(job["nodes"][1]["left"]);
  EXPECT_FALSE(job["nodes"][1]["reported"]);
  EXPECT_TRUE(job["nodes"][1]["exit_code"].is_null());
}

TEST(ReportOfAllNodes, WhatIsNoReportIsLeftOut) {
  const std::string deep(100'000, '[');
  for (const std::string& text :
       {std::string(), std::string("["), std::string("7"), std::string("{}"), R"({"attempts":7})" + deep,
        deep + std::string(100'000, ']'),
        std::string(R"({"attempts":[7,null,{"generation":3,"ends":9},{"ends":[1]}]})"),
        R"({"attempts":[{"generation":3,"first_failure":7,"ends":[)" + deep + std::string(100'000, ']') + "]}]}"}) {
    const Json job = Json::parse(merged_with(text));
    EXPECT_TRUE(job["attempts"][1]["first_failure"].is_null()) << text.substr(0, 60);
    EXPECT_EQ(job["nodes"].size(), 2u);
  }
}

}  // namespace
}  // namespace lockstep::launch
