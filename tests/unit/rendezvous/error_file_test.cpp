#include "lockstep/rendezvous/error_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/unique_fd.h"
#include "tests/support/scratch_folder.h"

namespace lockstep::rendezvous {
namespace {

using nlohmann::json;
using testing::read_file;
using testing::ScratchFolder;

const Failure kFailure{.rank = 1, .step = 12, .phase = "forward", .cause = "label 10 is not one of 0 to 9"};

class ErrorFile : public ::testing::Test {
 protected:
  ~ErrorFile() override { unsetenv("TORCHELASTIC_ERROR_FILE"); }
  static void write_to(const std::string& path, const Failure& failure = kFailure) {
    setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1);
    write_error_file(failure);
  }
  const ScratchFolder folder_;
};

TEST(ErrorFileText, IsTorchelastics) {
  const json root = json::parse(error_file_text(kFailure, 1700000000));
  EXPECT_EQ(root["message"]["message"], kFailure.cause);
  const json& extra = root["message"]["extraInfo"];
  EXPECT_EQ(extra["timestamp"], "1700000000");  // a string: torchrun calls int() on it
  EXPECT_EQ(extra["py_callstack"], kFailure.cause);
  EXPECT_EQ(extra["rank"], 1);
  EXPECT_EQ(extra["step"], 12);
  EXPECT_EQ(extra["phase"], "forward");
}

TEST(ErrorFileText, AnyBytesMakeValidJson) {
  Failure failure = kFailure;
  failure.cause = "file '\xff\xfe\"\n\\' is bad";
  const json root = json::parse(error_file_text(failure, 0));
  EXPECT_EQ(root["message"]["message"], "file '\xef\xbf\xbd\xef\xbf\xbd\"\n\\' is bad");
}

TEST_F(ErrorFile, NothingIsWrittenWithoutTheVariable) {
  unsetenv("TORCHELASTIC_ERROR_FILE");
  write_error_file(kFailure);
  write_to("");
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST_F(ErrorFile, IsWrittenOverWhatItHeld) {
  const std::string path = folder_.write("error.json", std::string(10'000, 'x'));
  const std::int64_t before = std::time(nullptr);
  write_to(path);
  const json root = json::parse(read_file(path));
  EXPECT_EQ(root["message"]["message"], kFailure.cause);
  EXPECT_GE(std::stoll(root["message"]["extraInfo"]["timestamp"].get<std::string>()), before);
  EXPECT_EQ(folder_.entries(), 1u);
}

TEST_F(ErrorFile, MayBeADescriptorOfTheLaunchers) {
  const base::UniqueFd memory(memfd_create("error", MFD_CLOEXEC));
  const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(memory.get());
  write_to(path);
  EXPECT_EQ(json::parse(read_file(path))["message"]["message"], kFailure.cause);
}

TEST_F(ErrorFile, ThatCannotBeOpenedLeavesNothing) {
  write_to(folder_.file("no/such/folder.json"));
  write_to(folder_.path());
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST_F(ErrorFile, APipeThatNobodyReadsIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(folder_.file("pipe").c_str(), 0600), 0);
  write_to(folder_.file("pipe"));
  EXPECT_EQ(folder_.entries(), 1u);
}

TEST_F(ErrorFile, IsTakenBackWhenItDoesNotFit) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{16, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  write_to(folder_.file("error.json"));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST_F(ErrorFile, AFullDeviceIsNoFailureOfItsOwn) {
  write_to("/dev/full");
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

}  // namespace
}  // namespace lockstep::rendezvous
