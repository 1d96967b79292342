#include "lockstep/comm/traced_group.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "lockstep/base/segment.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/trace/trace_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TraceSettings settings_by(const std::string& folder, const std::map<std::string, std::string>& variables) {
  return trace_settings(folder, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(TraceSettings, TheFolderIsTheProgramsOrTheEnvironmentsOrThatOfTheLogs) {
  const std::string error = "/logs/attempt_0/3/error.json";
  EXPECT_EQ(settings_by("", {}).folder, "");
  EXPECT_EQ(settings_by("", {{"TORCHELASTIC_ERROR_FILE", error}}).folder, "/logs/attempt_0/3");
  EXPECT_EQ(settings_by("", {{"TORCHELASTIC_ERROR_FILE", "/proc/71/fd/5"}}).folder, "")
      << "no folder of the launcher's";
  EXPECT_EQ(settings_by("", {{"TORCHELASTIC_ERROR_FILE", error}, {"LOCKSTEP_TRACE_DIR", "/traces"}}).folder, "/traces");
  EXPECT_EQ(settings_by("mine", {{"LOCKSTEP_TRACE_DIR", "/traces"}}).folder, "mine");
}

TEST(TraceSettings, TheNumberOfCallsIsChecked) {
  const auto by = [](const std::string& number) { return settings_by("f", {{"LOCKSTEP_TRACE_BUFFER_SIZE", number}}); };
  EXPECT_EQ(by("").capacity, 1000u);
  EXPECT_EQ(by("20").capacity, 20u);
  EXPECT_EQ(by("0").folder, "") << "none are kept";
  for (const std::string wrong : {"-1", "1000001", "20k", "many"})
    EXPECT_THAT(testing::usage_error([&] { (void)by(wrong); }),
                HasSubstr("LOCKSTEP_TRACE_BUFFER_SIZE is '" + wrong + "': a number of calls from 0 to 1000000"));
}

TEST(TracedGroup, KeepsEveryCallWithWhatItWasFor) {
  const testing::ScratchFolder folder;
  std::shared_ptr<Group> group = traced(std::make_shared<SingleGroup>(), {}, {.folder = folder.path()});
  ASSERT_NE(group->call_log(), nullptr);
  const at::Tensor two = at::ones({2, 1}), one = at::ones({2, 1});
  {
    const CallLabel label(group->call_log(), "bucket", 3);
    group->all_reduce(two, ReduceOp::max);
  }
  group->broadcast(two, 0);
  EXPECT_THROW(group->broadcast(two, 1), UsageError);
  EXPECT_THROW((void)group->new_group({1}), UsageError);
  (void)group->all_gather(two);
  group->reduce_scatter(one, two, ReduceOp::sum);
  group->all_to_all(one, two);
  group->all_gather_into_tensor(one, two);
  (void)group->shared_empty({3}, at::kLong);
  const std::shared_ptr<Group> part = duplicate(*group);
  part->barrier();
  const std::shared_ptr<Group> inner = duplicate(*part);
  inner->barrier();
  group->barrier();
  EXPECT_EQ(folder.entries(), 0u);
  group->abort("no more data");
  const trace::RankTrace trace = trace::read_traces({folder.path()}).at(0);
  std::vector<std::string> told;
  for (const trace::TracedCall& call : trace.calls) {
    std::string text = trace.groups.at(std::size_t(call.group)).name + " " + std::to_string(call.number) + " " +
                       call.kind + " " + call.dtype;
    for (const std::int64_t size : call.sizes) text += " " + std::to_string(size);
    told.push_back(text + " " + call.detail + " " + call.label);
    EXPECT_GE(call.end, call.begin) << call.kind;
  }
  EXPECT_EQ(told, (std::vector<std::string>{
                      "world 1 all_reduce Float 2 1 op max bucket 3", "world 2 broadcast Float 2 1 root 0 ",
                      "world 3 all_gather Float 2 1  ", "world 4 reduce_scatter Float 2 1 op sum ",
                      "world 5 all_to_all Float 2 1  ", "world 6 all_gather Float 2 1  ",
                      "world 7 shared_empty Long 3  ", "world 8 new_group   ", "world/1 1 barrier   ",
                      "world/1 2 new_group   ", "world/1/1 1 barrier   ", "world 9 barrier   "}))
      << "refused calls do not count";
  EXPECT_EQ(trace.failure->cause, "no more data");
}

TEST(TracedGroup, WithoutAFolderAGroupOfOneRankStaysAsItIs) {
  const auto group = std::make_shared<SingleGroup>();
  EXPECT_EQ(traced(group, {}, {}), group);
}

// Whatever is kept: nothing here.
TEST(TracedGroup, AWaitThatLastsTellsWhichCallItIsAndWhoHasCome) {
  const base::Segment segment = base::Segment::create(3);
  ::testing::internal::CaptureStderr();
  const auto is_quiet = [] {
    struct stat said {};
    return fstat(STDERR_FILENO, &said) == 0 && said.st_size == 0;
  };
  std::atomic<bool> second_comes{false};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      const std::shared_ptr<Group> group =
          traced(std::make_shared<ShmGroup>(base::Segment::open(segment.path(), 3), rank, 60s), {}, {});
      group->barrier();
      EXPECT_THROW(group->broadcast(at::ones({1}), 7), UsageError);
      if (rank == 0) group->node().member.set_stall_warning(200ms);
      if (rank == 2) second_comes = true;
      const auto is_to_wait = [&] { return rank == 1 ? is_quiet() : !second_comes.load(); };
      for (int looks = 0; is_to_wait() && looks < 20'000; ++looks) std::this_thread::sleep_for(1ms);
      const CallLabel label(group->call_log(), "bucket", 3);
      group->all_reduce(at::ones({2, 3}), ReduceOp::sum);
    });
  for (std::thread& rank : ranks) rank.join();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("lockstep: rank 0 (step 0, collective) has waited 200 ms for rank 1 (step 0, outside a "
                              "step) in all_reduce(6 x Float, op 0); collective 2 of world: all_reduce(2x3 Float, op "
                              "sum), bucket 3; others that have arrived: 2\n"));
}

}  // namespace
}  // namespace lockstep::comm
