// What is told of a rank's steps: times, the order of gradients, the file of all ranks.

#include "lockstep/parallel/timeline.h"

#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "tests/unit/parallel/hook_job.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string file_of(const char* name) {
  return std::filesystem::path(::testing::TempDir()) / (std::to_string(getpid()) + name);
}

void train_two_steps(Engine& ddp, auto&& forward, auto& optimizer, const Groups& group) {
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    forward(batch_of(group->rank(), step)).square().mean().backward();
    optimizer.step();
  }
  const LoggingData data = ddp.debug().logging_data();
  EXPECT_EQ(data.steps, 2u);
  for (const StepTimes& times : {data.last, data.all}) {
    EXPECT_GT(times.forward, 0);
    EXPECT_GT(times.backward, 0);
    EXPECT_GE(times.between, 0);
  }
  EXPECT_GE(data.all.total(), data.last.total());
  EXPECT_EQ(std::set<std::string>(data.ready_order.begin(), data.ready_order.end()),
            (std::set<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"}));
  EXPECT_EQ(data.ready_order.size(), 4u);
  EXPECT_EQ(data.ready_order[0][0], '2') << "the last layer first";
}

// Rank 1 comes to a step much later than rank 0, which waits: most of that, or a hundredth on a busy machine.
void wait_for_the_other(DistributedDataParallel<torch::nn::Sequential>& ddp, optim::SGD& optimizer,
                        const Groups& group) {
  constexpr std::chrono::duration<double> kLate(0.2);
  ddp(batch_of(group->rank(), 7)).square().mean().backward();
  group->barrier();
  if (group->rank() == 1) std::this_thread::sleep_for(kLate);
  optimizer.step();
  EXPECT_GT(ddp.debug().logging_data().last.exchange, group->rank() == 0 ? kLate.count() / 100 : 0);
  EXPECT_GT(ddp.debug().logging_data().last.update, 0);
}

TEST(LoggingData, OnBothPaths) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    torch::nn::Sequential net = two_layers();
    DistributedDataParallel ddp(net, group, {.buckets = {.bucket_cap_mb_list = {1e-5, 1}}});
    torch::optim::SGD classic(net->parameters(), torch::optim::SGDOptions(0.1));
    train_two_steps(ddp, ddp, classic, group);
    EXPECT_THAT(ddp.debug().logging_data().buckets, ElementsAre(12, 4 * (12 + 4 + 24)));
    EXPECT_GT(ddp.debug().logging_data().last.exchange, 0);
    EXPECT_EQ(ddp.debug().logging_data().all.update, 0) << "torch's is not seen";

    DistributedDataParallel fused(two_layers(), group);
    optim::SGD ours(fused, {.lr = 0.1});
    train_two_steps(fused, fused, ours, group);
    EXPECT_TRUE(fused.debug().logging_data().buckets.empty());
    EXPECT_GT(fused.debug().logging_data().last.update, 0);
    wait_for_the_other(fused, ours, group);
  });
}

// What the phases of a rank may not do: overlap, but for an exchange within backward.
void check_row(const std::vector<nlohmann::json>& phases) {
  double end = 0;
  for (const auto& phase : phases) {
    if (phase["name"].get<std::string>().starts_with("exchange")) continue;
    EXPECT_GE(phase["ts"].get<double>() + 0.01, end) << phase;
    EXPECT_GE(phase["dur"].get<double>(), 0);
    end = phase["ts"].get<double>() + phase["dur"].get<double>();
  }
}

// No rank has the mean of a bucket before all have brought theirs, of a step that begins with its forward.
void check_one_clock(const nlohmann::json& events) {
  for (const auto& exchange : events)
    for (const auto& forward : events)
      if (exchange["name"] == "exchange bucket 0" && forward["name"] == "forward" &&
          exchange["args"]["step"] == forward["args"]["step"]) {
        EXPECT_GT(exchange["ts"].get<double>() + exchange["dur"].get<double>() + 0.01,
                  forward["ts"].get<double>() + forward["dur"].get<double>())
            << exchange << forward;
      }
}

TEST(Timeline, IsOneFileOfAllRanks) {
  const std::string path = file_of("timeline.json");
  run_ranks(RankKind::processes, 3, [&](Groups group) {
    torch::nn::Sequential net = two_layers();
    DistributedDataParallel ddp(net, group);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
    ddp.start_timeline(path);
    train_two_steps(ddp, ddp, optimizer, group);
    ddp.stop_timeline();
    ddp.stop_timeline();  // there is none
    ddp(batch_of(0, 0)).sum().backward();
  });
  std::ifstream file(path);
  const auto events = nlohmann::json::parse(file);
  std::set<int> named;
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<nlohmann::json> row;
    std::vector<std::string> names;
    for (const auto& event : events) {
      if (event["pid"] != rank) continue;
      if (event["ph"] == "M") {
        named.insert(rank);
        EXPECT_EQ(event["args"]["name"], "rank " + std::to_string(rank));
      } else {
        row.push_back(event);
        names.push_back(event["name"].get<std::string>() + " " + event["args"]["step"].dump());
      }
    }
    EXPECT_THAT(names, ElementsAre("between 1", "forward 1", "exchange bucket 0 1", "backward 1", "between 2",
                                   "forward 2", "exchange bucket 0 2", "backward 2"));
    check_row(row);
  }
  EXPECT_EQ(named.size(), 3u);
  check_one_clock(events);
  std::filesystem::remove(path);
}

TEST(Timeline, OfAnOptimizerOfOursHasUpdates) {
  const std::string path = file_of("fused.json");
  run_ranks(RankKind::single, 1, [&](Groups group) {
    DistributedDataParallel ddp(two_layers(), group);
    optim::SGD optimizer(ddp, {.lr = 0.1});
    ddp.start_timeline(path);
    train_two_steps(ddp, ddp, optimizer, group);
  });  // a program that does not end it
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(text, HasSubstr("\"update\""));
  ASSERT_THAT(text, ::testing::EndsWith(",\n"));
  EXPECT_EQ(nlohmann::json::parse(text.substr(0, text.size() - 2) + "]").size(), 1u + 2 * 4);
  EXPECT_THAT(text, Not(HasSubstr("exchange"))) << "there is nobody to wait for";
  std::filesystem::remove(path);
}

// What a rank's thread sends to other nodes, in a row of its own.
TEST(Timeline, HasARowForWaves) {
  const std::string path = file_of("waves.json");
  support::run_nodes({1, 1}, [&](Groups group) {
    DistributedDataParallel ddp(two_layers(), group, {.overlap_bytes = 1});
    optim::SGD optimizer(ddp, {.lr = 0.1});
    ddp.start_timeline(path);
    train_two_steps(ddp, ddp, optimizer, group);
    ddp.stop_timeline();
  });
  std::ifstream file(path);
  std::map<std::pair<int, int>, std::vector<std::string>> waves;  // by rank and step
  for (const auto& event : nlohmann::json::parse(file))
    if (event.value("tid", 0) == 1)
      waves[{event["pid"].get<int>(), event["args"]["step"].get<int>()}].push_back(event["name"].get<std::string>());
  EXPECT_EQ(waves.size(), 4u);
  for (const auto& [where, names] : waves)
    EXPECT_THAT(names, ElementsAre("wave 0", "wave 1", "wave 2", "wave 3", "wave 4")) << where.first << where.second;
  std::filesystem::remove(path);
}

TEST(Timeline, AFileThatCannotBeWrittenIsNamed) {
  run_ranks(RankKind::single, 1, [&](Groups group) {
    DistributedDataParallel ddp(two_layers(), group);
    EXPECT_EQ(error_of([&] { ddp.start_timeline("/nowhere/timeline.json"); }),
              "timeline '/nowhere/timeline.json': cannot open it: No such file or directory");
  });
  if (access("/dev/full", W_OK) != 0) return;
  testing::internal::CaptureStderr();
  Timeline full("/dev/full", 0, {});
  full.end_step(1);
  full.end_step(2);  // it has said so, and is silent
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "lockstep: warning: timeline '/dev/full' ends here: No space left on device\n");
}

TEST(Timeline, SaysWhichOptionsHaveNothingToDo) {
  for (const bool starts_first : {false, true}) {
    const std::string path = file_of("ignored.json");
    run_ranks(RankKind::processes, 2, [&](Groups group) {
      DistributedDataParallel ddp(two_layers(), group, {.static_graph = true, .gradient_as_bucket_view = true});
      if (starts_first) ddp.start_timeline(path);
      optim::SGD optimizer(ddp, {.lr = 0.1});
      if (!starts_first) ddp.start_timeline(path);
      ddp.stop_timeline();
    });
    std::ifstream file(path);
    std::vector<std::string> notes;
    for (const auto& event : nlohmann::json::parse(file)) {
      if (event["ph"] != "i") continue;
      EXPECT_EQ(event["pid"], 0) << "once";
      notes.push_back(event["name"]);
    }
    EXPECT_THAT(notes, ElementsAre(HasSubstr("without effect: static_graph: with an optimizer of lockstep::optim"),
                                   HasSubstr("without effect: gradient_as_bucket_view: ")));
  }
}

}  // namespace
}  // namespace lockstep::parallel
