// lockstep train saves to a disk that fills up, cannot be written to, or is gone: training goes on, the last good
// checkpoint stays, each save that fails is told once, and the next one is tried again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/support/train_run.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::By;
using ::testing::HasSubstr;
using testing::Job;
using ::testing::UnorderedElementsAre;
using testing::Words;

// A small file system in memory, which ends with the object.
class SmallDisk {
 public:
  SmallDisk(std::string path, const char* size) : path_(std::move(path)) {
    fs::create_directories(path_);
    mounted_ = mount("none", path_.c_str(), "tmpfs", 0, size) == 0;
    why_not_ = mounted_ ? "" : "no small file system can be mounted here: " + std::string(std::strerror(errno));
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  const std::string& why_not() const { return why_not_; }
  /// Waits until nobody writes, where it is to become read-only.
  void set_read_only(bool wanted) const {
    testing::wait_until(
        [&] { return mount("none", path_.c_str(), nullptr, MS_REMOUNT | (wanted ? MS_RDONLY : 0), nullptr) == 0; });
  }
  /// Leaves no byte, whatever else has become free meanwhile.
  void fill() const {
    std::ofstream out(path_ + "/filler", std::ios::app | std::ios::binary);
    const std::string page(4096, 'x');
    while (out.write(page.data(), std::streamsize(page.size())).flush()) {
    }
  }
  void clear() const { fs::remove(path_ + "/filler"); }

 private:
  std::string path_;
  bool mounted_ = false;
  std::string why_not_;
};

class TrainDisk : public ::testing::Test {
 protected:
  Job endless() const {
    return Job(
        testing::train_command(By::lockstep, 2,
                               {"--dataset", "mnist", "--data-path", set_, "--model", "mlp", "--max-steps", "100000000",
                                "--global-batch-size", "40", "--print-freq", "1", "--no-eval", "--save-every", "20",
                                "--checkpoint-hist", "1", "--output-dir", folder_.file("run")}));
  }

  std::string checkpoints() const { return folder_.file("run/checkpoints"); }
  std::string last() const {
    std::error_code none;
    return fs::read_symlink(checkpoints() + "/last", none).string();
  }
  std::size_t reported() const { return testing::lines(testing::read_file(folder_.file("run/metrics.jsonl"))).size(); }
  static std::vector<std::string> warnings(const Job& job) {
    std::vector<std::string> found;
    for (const std::string& line : testing::lines(job.err()))
      // What is told of older checkpoints depends on the moment at which the fault takes the folder away.
      if (line.find("warning: ") != std::string::npos &&
          line.find("of the checkpoints before: ") == std::string::npos && line.find(kLeftOut) == std::string::npos)
        found.push_back(line);
    return found;
  }
  // The files of which it was told that they lack something.
  static std::vector<std::string> left_out(const Job& job) {
    std::vector<std::string> found;
    for (const std::string& line : testing::lines(job.err()))
      if (line.find(kLeftOut) != std::string::npos) found.push_back(line);
    return found;
  }
  bool is_whole(const std::string& checkpoint) const {
    Job job({LOCKSTEP_PROGRAM, "checkpoint", "verify", checkpoints() + "/" + checkpoint});
    return job.wait() == 0;
  }

  // From a first checkpoint over saves that fail to one that succeeds, and to the end.
  void expect_goes_on(const std::function<void()>& fault, const std::function<void()>& mend, const char* reason,
                      bool last_stays = true) {
    Job job = endless();
    testing::wait_until([&] { return !last().empty(); });
    testing::wait_until([&] {
      fault();
      return warnings(job).size() >= 2;
    });
    const std::string good = last();
    const std::size_t lines = reported();
    testing::wait_until([&] { return reported() >= lines + 20; });
    if (last_stays) {
      EXPECT_EQ(last(), good);
      EXPECT_TRUE(is_whole(good));
    }
    mend();
    testing::wait_until([&] { return !last().empty() && last() != good; });
    kill(job.pid(), SIGTERM);
    EXPECT_EQ(job.wait(), 75) << job.err();
    EXPECT_TRUE(is_whole(last()));
    std::set<std::string> steps;
    for (const std::string& line : warnings(job)) {
      EXPECT_THAT(line, HasSubstr("lockstep: warning: no checkpoint of step "));
      EXPECT_THAT(line, HasSubstr(reason));
      EXPECT_TRUE(line.ends_with("; training goes on")) << line;
      EXPECT_TRUE(steps.insert(line.substr(0, line.find(": ", line.find("of step ")))).second) << "twice: " << line;
    }
  }

  static constexpr const char* kLeftOut = "what it does not take is left out, training goes on";

  testing::ScratchFolder folder_;
  const std::string set_ = testing::write_mnist(folder_);
};

TEST_F(TrainDisk, Full) {
  const SmallDisk disk(checkpoints(), "size=8m");
  if (!disk.why_not().empty()) GTEST_SKIP() << disk.why_not();
  expect_goes_on([&] { disk.fill(); }, [&] { disk.clear(); }, "No space left on device");
}

// What is told of the run shares the disk with the checkpoints.
TEST_F(TrainDisk, FullForTheFilesOfTheRunToo) {
  const SmallDisk disk(folder_.file("run"), "size=8m");
  if (!disk.why_not().empty()) GTEST_SKIP() << disk.why_not();
  Job job = endless();
  testing::wait_until([&] { return !last().empty(); });
  testing::wait_until([&] {
    disk.fill();
    return (left_out(job).size() >= 3 && warnings(job).size() >= 2) || testing::process_state(job.pid()) == 'Z';
  });
  const std::string good = last();
  const std::size_t shown = testing::lines(job.out()).size(), reported_before = reported();
  testing::wait_until(
      [&] { return testing::lines(job.out()).size() >= shown + 20 || testing::process_state(job.pid()) == 'Z'; });
  disk.clear();
  testing::wait_until([&] {
    return (last() != good && reported() >= reported_before + 20) || testing::process_state(job.pid()) == 'Z';
  });
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 75) << job.err();
  EXPECT_TRUE(is_whole(last()));
  EXPECT_THAT(left_out(job), UnorderedElementsAre(HasSubstr("/metrics.jsonl': No space left on device"),
                                                  HasSubstr("/metrics.csv': No space left on device"),
                                                  HasSubstr("/events.out.tfevents.")))
      << "each once";
  for (const std::string& line : testing::lines(testing::read_file(folder_.file("run/metrics.jsonl"))))
    EXPECT_TRUE(line.starts_with(R"({"event":")") && line.ends_with("}")) << line;
}

// What could not be saved at the end is not done: a launcher restarts it, and whoever waits for it hears of it. Rank 0
// alone knows, and the others do not wait for it then, or say that it was lost.
TEST_F(TrainDisk, FullAtTheEndIsAFailure) {
  const SmallDisk disk(checkpoints(), "size=8m");
  if (!disk.why_not().empty()) GTEST_SKIP() << disk.why_not();
  disk.fill();
  for (const By by : {By::lockstep, By::mpirun}) {
    if (!testing::why_not(by).empty()) continue;
    Job job(testing::train_command(
        by, 2,
        {"--dataset", "mnist", "--data-path", set_, "--model", "mlp", "--max-steps", "3", "--global-batch-size", "40",
         "--no-eval", "--save-every", "1ep", "--overwrite", "--output-dir", folder_.file("run")}));
    EXPECT_EQ(job.wait(), 1) << job.err();
    EXPECT_THAT(job.err(), HasSubstr("lockstep: warning: no checkpoint of step 3: "));
    EXPECT_THAT(job.err(), ::testing::Not(HasSubstr("left the group"))) << to_string(by);
  }
}

TEST_F(TrainDisk, ReadOnly) {
  const SmallDisk disk(checkpoints(), "size=8m");
  if (!disk.why_not().empty()) GTEST_SKIP() << disk.why_not();
  expect_goes_on([&] { disk.set_read_only(true); }, [&] { disk.set_read_only(false); }, "Read-only file system");
}

// A folder that is only gone is made again; where it was there is a file.
TEST_F(TrainDisk, GoneAndInTheWay) {
  const auto replace = [&] {
    // While the folder is emptied a save may put a file in.
    testing::wait_until([&] {
      std::error_code busy;
      fs::remove_all(checkpoints(), busy);
      return !busy;
    });
    folder_.write("run/checkpoints", "");
  };
  expect_goes_on(
      replace, [&] { fs::remove(checkpoints()); }, "", /*last_stays=*/false);
}

}  // namespace
}  // namespace lockstep
