#include "lockstep/launch/doctor/local_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::launch {
namespace {

using Level = Finding::Level;
using testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t(1) << 20;
constexpr std::uint64_t kGiB = std::uint64_t(1) << 30;

// Expects a finding of `what` with this level and these words in its value. Those that are not good say what to do.
void expect_finding(const std::vector<Finding>& findings, const std::string& what, Level level,
                    const std::string& value) {
  for (const Finding& one : findings) {
    if (one.what != what || one.value.find(value) == std::string::npos) continue;
    EXPECT_EQ(int(one.level), int(level)) << what << ": " << one.value;
    EXPECT_EQ(one.advice.empty(), level == Level::good) << what << ": " << one.value;
    return;
  }
  ADD_FAILURE() << "no finding " << what << " with " << value;
}

MemoryFacts good_memory() {
  return {.dev_shm = MemoryFacts::Space{8 * kGiB, 7 * kGiB},
          .locked = ResourceLimit{8 * kMiB, 8 * kMiB},
          .huge_pages = "madvise",
          .shared_huge_pages = "never"};
}

TEST(Doctor, SharedMemory) {
  MemoryFacts facts = good_memory();
  expect_finding(check_memory(facts), "/dev/shm", Level::good, "8.0 GiB, 7.0 GiB free");
  facts.dev_shm = {64 * kMiB, 64 * kMiB};
  expect_finding(check_memory(facts), "/dev/shm", Level::note, "64.0 MiB");
  facts.dev_shm = {8 * kGiB, 64 * kMiB - 1};
  expect_finding(check_memory(facts), "/dev/shm", Level::wrong, "free");
  facts.dev_shm.reset();
  expect_finding(check_memory(facts), "/dev/shm", Level::wrong, "not there");
}

TEST(Doctor, LockedMemoryMattersWhereThereIsRdma) {
  MemoryFacts facts = good_memory();
  expect_finding(check_memory(facts), "locked memory", Level::good, "8.0 MiB");
  facts.rdma_devices = {"mlx5_0"};
  expect_finding(check_memory(facts), "locked memory", Level::wrong, "mlx5_0");
  facts.locked = ResourceLimit{};
  expect_finding(check_memory(facts), "locked memory", Level::good, "unlimited");
}

TEST(Doctor, HugePages) {
  MemoryFacts facts = good_memory();
  expect_finding(check_memory(facts), "huge pages", Level::good, "madvise, shared memory: never");
  facts.huge_pages = "never";
  expect_finding(check_memory(facts), "huge pages", Level::note, "never");
}

TEST(Doctor, MemoryOfTheControlGroup) {
  MemoryFacts facts = good_memory();
  expect_finding(check_memory(facts), "memory limit", Level::good, "none");
  facts.control_group = {4 * kGiB, 1 * kGiB};
  expect_finding(check_memory(facts), "memory limit", Level::good, "4.0 GiB, 1.0 GiB left");
  facts.control_group = {4 * kGiB, 100 * kMiB};
  expect_finding(check_memory(facts), "memory limit", Level::wrong, "100.0 MiB left");
}

TEST(Doctor, Cores) {
  expect_finding(check_cores({8, std::nullopt}), "cores", Level::good, "8");
  expect_finding(check_cores({8, 16.0}), "cores", Level::good, "8");
  expect_finding(check_cores({8, 4.0}), "cores", Level::good, "grant 4.00");
  expect_finding(check_cores({8, 1.5}), "cores", Level::note, "grant 1.50");
  expect_finding(check_cores({8, 0.5}), "cores", Level::wrong, "grant 0.50");
}

TEST(Doctor, OpenFiles) {
  expect_finding(check_files(ResourceLimit{1024, 4096}), "open files", Level::good, "1024 (at most 4096)");
  expect_finding(check_files(ResourceLimit{}), "open files", Level::good, "unlimited");
  expect_finding(check_files(ResourceLimit{256, 4096}), "open files", Level::wrong, "256");
  EXPECT_THAT(check_files(ResourceLimit{256, 512}).front().advice, HasSubstr("by root"));
  EXPECT_THAT(check_files(ResourceLimit{256, 4096}).front().advice, testing::Not(HasSubstr("root")));
}

TEST(Doctor, NamesBothWays) {
  expect_finding(check_names({"n1", "not known", {}}), "name n1", Level::wrong, "not known");
  const auto both = check_names({"n1.x", "", {{"10.0.0.1", "n1.y"}, {"10.0.0.2", ""}, {"10.0.0.3", "n2"}}});
  expect_finding(both, "name n1.x", Level::good, "10.0.0.1, 10.0.0.2, 10.0.0.3");
  expect_finding(both, "name of 10.0.0.1", Level::good, "n1.y");
  expect_finding(both, "name of 10.0.0.2", Level::note, "none");
  expect_finding(both, "name of 10.0.0.3", Level::note, "n2, not n1.x");
  expect_finding(check_names({"n1", "", {{"127.0.1.1", "n1"}, {"::1", "n1"}}}), "name n1", Level::note, "127.0.1.1");
  EXPECT_EQ(check_names({"n1", "", {{"127.0.1.1", "n1"}}}).size(), 1U);
}

TEST(Doctor, Interfaces) {
  expect_finding(check_interfaces({{"lo", "127.0.0.1", true, true}, {"eth0", "10.0.0.1", true, false}}), "interfaces",
                 Level::good, "eth0 10.0.0.1");
  expect_finding(check_interfaces({{"lo", "127.0.0.1", true, true}, {"eth0", "10.0.0.1", false, false}}), "interfaces",
                 Level::note, "none but loopback");
}

TEST(Doctor, Endpoint) {
  EndpointFacts facts{
      .text = "n1:29400", .address = "10.0.0.1", .interface_name = "eth0", .local = true, .port = 29400};
  expect_finding(check_endpoint(facts), "endpoint n1:29400", Level::good, "10.0.0.1 by eth0, here, port 29400 is free");
  expect_finding(check_endpoint(facts), "not protected", Level::note, "with a key or without");
  facts.port_error = "Address already in use";
  expect_finding(check_endpoint(facts), "endpoint n1:29400", Level::wrong, "port 29400: Address already in use");
  facts.local = false;
  expect_finding(check_endpoint(facts), "endpoint n1:29400", Level::good, "on another machine");
  expect_finding(check_endpoint(facts), "not protected", Level::note, "with a key or without");
  facts.error = "Name or service not known";
  expect_finding(check_endpoint(facts), "endpoint n1:29400", Level::wrong, "not known");
  const EndpointFacts loop{.text = "localhost", .address = "127.0.0.1", .interface_name = "lo", .local = true};
  expect_finding(check_endpoint(loop), "endpoint localhost", Level::good, "port any");
  expect_finding(check_endpoint(loop), "endpoint localhost", Level::note, "is loopback");
}

TEST(Doctor, Clock) {
  expect_finding(check_clock({"tsc", true}), "clock source", Level::good, "tsc");
  expect_finding(check_clock({"hpet", true}), "clock source", Level::note, "hpet");
  expect_finding(check_clock({"tsc", true}), "clock", Level::good, "synchronized");
  expect_finding(check_clock({"tsc", false}), "clock", Level::note, "not synchronized");
}

TEST(Doctor, Gpus) {
  expect_finding(check_gpus({}), "GPUs", Level::good, "none");
  expect_finding(check_gpus({"550.54", 2, 2}), "GPUs", Level::good, "2 of 2");
  expect_finding(check_gpus({"550.54", 2, 1}), "GPUs", Level::good, "1 of 2");  // a scheduler gave this job one
  expect_finding(check_gpus({"550.54", 2, 0}), "GPUs", Level::wrong, "0 of 2");
  expect_finding(check_gpus({std::nullopt, 0, 2}), "GPUs", Level::wrong, "driver unknown");
  expect_finding(check_gpus({"550.54", 2, 2, "", "all pairs"}), "GPUs", Level::good, "peer access: all pairs");
  expect_finding(check_gpus({"550.54", 1, 1, "the NVIDIA driver is not there: x"}), "GPUs", Level::note,
                 "driver 550.54, but the NVIDIA driver is not there: x");
}

TEST(Doctor, Versions) {
  VersionFacts facts{"0.1.0", "abc", "Linux 6.1", "avx2", "2.11.0", ""};
  expect_finding(check_versions(facts), "lockstep", Level::good, "0.1.0, commit abc");
  expect_finding(check_versions(facts), "libtorch", Level::good, "2.11.0");
  facts.cuda = "13.0";
  facts.nccl = "none";
  expect_finding(check_versions(facts), "libtorch", Level::good, "2.11.0, CUDA: 13.0, NCCL: none");
  facts.libtorch = "";
  facts.libtorch_error = "not found";
  expect_finding(check_versions(facts), "libtorch", Level::wrong, "not found");
}

TEST(Doctor, LeftoversAreProcessesWithoutTheirAgent) {
  LocalFacts facts;
  facts.processes = {{10, "lockstep", "", 4096},                // an agent
                     {11, "train", "/proc/10/fd/4", 4096},      // its worker
                     {12, "sh", "/proc/10/fd/4", 0},            // another, which is no program of ours
                     {21, "train", "/proc/20/fd/4", 8 * kMiB},  // its agent has ended,
                     {20, "sh", "/proc/10/fd/4", 0},            // and another process has its number
                     {31, "rank", "", kMiB},                    // of mpirun, or alone
                     {41, "rank", "/somewhere", kMiB}};
  std::vector<pid_t> pids;
  for (const JobProcess& one : left_over(facts.processes)) pids.push_back(one.pid);
  EXPECT_THAT(pids, testing::ElementsAre(21));
  expect_finding(check_leftovers(facts), "left over", Level::wrong, "process 21 (train)");
  EXPECT_THAT(check_leftovers(facts).front().advice, HasSubstr("kill 21"));
  expect_finding(check_leftovers({}), "left over", Level::good, "nothing");
  facts.processes.clear();
  facts.log_folders = {"/tmp/lockstep_a", "/tmp/lockstep_b"};
  expect_finding(check_leftovers(facts), "left over", Level::note, "2 log folders, the first is /tmp/lockstep_a");
}

TEST(Doctor, TextAndJsonHoldEveryFinding) {
  const std::vector<Examined> all = {{"n1", {{Level::good, "cores", "8", ""}, {Level::note, "clock\n", "x", "run y"}}},
                                     {"n2", {{Level::wrong, "files", "1\xff", "ulimit"}}}};
  EXPECT_EQ(findings_as_text(all),
            "n1\n  good   cores: 8\n  note   clock\\n: x\n         run y\n\n"
            "n2\n  wrong  files: 1\\xff\n         ulimit\n\n1 wrong, 1 note\n");
  const auto json = nlohmann::json::parse(findings_as_json(all));
  EXPECT_EQ(json["wrong"], 1);
  EXPECT_EQ(json["examined"][0]["findings"][1]["advice"], "run y");
  EXPECT_EQ(json["examined"][1]["findings"][0]["level"], "wrong");
  EXPECT_TRUE(anything_wrong(all));
  EXPECT_FALSE(anything_wrong({all.front()}));
  EXPECT_THAT(findings_as_text({all.front()}), HasSubstr("nothing wrong, 1 note\n"));
}

}  // namespace
}  // namespace lockstep::launch
