#include "lockstep/train/observers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

#include "lockstep/train/run_files.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;

// Writes down what it is told; its end, too.
class Diary final : public Observer {
 public:
  Diary(std::string name, std::vector<std::string>& pages) : name_(std::move(name)), pages_(pages) {}
  ~Diary() override { write("end"); }
  void started(const RunSize& run) override { write("start " + std::to_string(run.total_steps)); }
  void trained(const TrainEvent& event) override { write("train " + std::to_string(event.step)); }
  void evaluated(const EvalEvent& event) override { write("eval " + std::to_string(event.step)); }
  void saved(const SaveEvent& event) override { write("save " + std::to_string(event.step)); }
  void finished(const RunEnd& end) override { write("done " + std::to_string(end.steps)); }

 private:
  void write(const std::string& text) { pages_.push_back(name_ + ": " + text); }
  std::string name_;
  std::vector<std::string>& pages_;
};

class Failing final : public Observer {
 public:
  explicit Failing(std::string why) : why_(std::move(why)) {}
  void trained(const TrainEvent&) override { throw std::runtime_error(why_); }

 private:
  std::string why_;
};

TEST(Observers, AreToldInTheirOrderAndEndInTheOpposite) {
  std::vector<std::string> pages;
  {
    Observers all;
    all.add(std::make_unique<Diary>("a", pages));
    all.add(std::make_unique<Diary>("b", pages));
    all.started({.total_steps = 7});
    all.trained({.step = 3});
    all.evaluated({.step = 5});
    all.saved({.step = 5});
    all.finished({.steps = 7});
  }
  EXPECT_THAT(pages, ElementsAre("a: start 7", "b: start 7", "a: train 3", "b: train 3", "a: eval 5", "b: eval 5",
                                 "a: save 5", "b: save 5", "a: done 7", "b: done 7", "b: end", "a: end"));
}

TEST(Observers, OneThatFailsKeepsNothingFromTheOthers) {
  std::vector<std::string> pages;
  Observers all;
  all.add(std::make_unique<Failing>("first"));
  all.add(std::make_unique<Failing>("second"));
  all.add(std::make_unique<Diary>("c", pages));
  try {
    all.trained({.step = 3});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_THAT(pages, ElementsAre("c: train 3"));
  all.evaluated({.step = 3});  // of no interest to the two
}

TEST(Observers, OnlyRankZeroHasFiles) {
  const testing::ScratchFolder folder;
  const Options options{.output_dir = folder.file("run")};
  make_observers(options, options, /*rank=*/1, {.run_id = "a run"})->finished({});
  EXPECT_FALSE(std::filesystem::exists(folder.file("run")));
  const auto zero = make_observers(options, options, /*rank=*/0, {.run_id = "a run"});
  EXPECT_TRUE(std::filesystem::exists(folder.file("run/config.json"))) << "before anything has begun";
  EXPECT_TRUE(std::filesystem::exists(folder.file("run/metrics.jsonl")));
}

TEST(Observers, OnlyTheNumberOfProcessesMayDifferFromAnEarlierStart) {
  EXPECT_TRUE(differs_in_processes_alone(R"({"lr":1,"nproc_per_node":1})", R"({"lr":1,"nproc_per_node":2})"));
  EXPECT_FALSE(differs_in_processes_alone(R"({"lr":1,"nproc_per_node":1})", R"({"lr":2,"nproc_per_node":1})"));
  for (const char* damaged : {"", "[]", R"({"lr":1,)"})
    EXPECT_FALSE(differs_in_processes_alone(damaged, R"({"lr":1,"nproc_per_node":1})")) << damaged;
}

}  // namespace
}  // namespace lockstep::train
