#include "lockstep/checkpoint/store/write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/store/aside_folder.h"
#include "lockstep/checkpoint/store/find.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/checkpoint/store/verify.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"
#include "tests/unit/checkpoint/store/a_checkpoint.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::read_file;
using lockstep::testing::ScratchFolder;
using lockstep::testing::usage_error;
using testing::ACheckpoint;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::write_step;

TEST(WriteCheckpoint, IsAFolderOfTheseFilesAndALink) {
  const ScratchFolder folder;
  const std::string path = write_step(folder.file("a/checkpoints"), 1234);
  EXPECT_EQ(path, folder.file("a/checkpoints/step-00001234"));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename().string());
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre("MANIFEST", "model.safetensors", "optimizer.safetensors", "state.json"));
  EXPECT_EQ(fs::read_symlink(folder.file("a/checkpoints/last")), "step-00001234") << "relative: the folder may move";
  EXPECT_EQ(parse_state(read_file(path + "/state.json"), ""), ACheckpoint(1234).contents.state);
}

TEST(WriteCheckpoint, EqualStatesAreEqualBytes) {
  const ScratchFolder folder;
  const std::string one = write_step(folder.file("a"), 3), other = write_step(folder.file("b"), 3);
  for (const char* name : {"MANIFEST", "model.safetensors", "optimizer.safetensors", "state.json"})
    EXPECT_EQ(read_file(one + "/" + name), read_file(other + "/" + name)) << name;
}

TEST(WriteCheckpoint, TensorsLieRowMajorWhateverTheirStrides) {
  const ScratchFolder folder;
  const std::vector<float> values = {1, 4, 2, 5, 3, 6};  // [2, 3] with the first dimension innermost
  TensorBytes tensor = testing::floats("t", {2, 3}, values);
  tensor.strides = {1, 2};
  const FileEntry file = write_tensors(folder.file("a"), {tensor});
  const std::string bytes = read_file(folder.file("a"));
  const auto* data = reinterpret_cast<const float*>(bytes.data() + file.pieces[1].begin);
  EXPECT_THAT(std::vector<float>(data, data + 6), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(WriteCheckpoint, TheSameStepAgainReplacesIt) {
  const ScratchFolder folder;
  write_step(folder.path(), 3);
  ACheckpoint other(3);
  other.contents.state.extra = "\"again\"";
  const std::string path = write_checkpoint(folder.path(), other.contents);
  EXPECT_THAT(verify(path), IsEmpty());
  EXPECT_EQ(parse_state(read_file(path + "/state.json"), "").extra, "\"again\"");
  EXPECT_EQ(folder.entries(), 2u) << "the step and its link";
}

TEST(WriteCheckpoint, KeepsTheNewestAndTheBest) {
  const ScratchFolder folder;
  for (const auto& [step, metric] : {std::pair(1, 0.1), {2, 0.9}, {3, 0.3}, {4, 0.4}})
    write_step(folder.path(), std::uint64_t(step), {.keep = 1}, metric);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(2, 4))
      << "what the link best leads to stays without being asked for";
  EXPECT_EQ(linked_step(folder.path(), kBestName), 2u);
  EXPECT_EQ(linked_step(folder.path(), kLastName), 4u);
}

// A disk may refuse a file once, as one that is a folder does here.
TEST(WriteCheckpoint, OneWhoseMetricCannotBeReadStaysForItMayBeTheBest) {
  const ScratchFolder folder;
  write_step(folder.path(), 1, {.keep = 1}, 0.9);
  write_step(folder.path(), 2, {.keep = 1}, 0.3);
  const std::string state = folder.file(step_name(1) + "/state.json");
  fs::rename(state, state + ".aside");
  fs::create_directory(state);
  ::testing::internal::CaptureStderr();
  write_step(folder.path(), 3, {.keep = 1}, 0.4);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "lockstep: warning: of the checkpoints before: cannot read '" +
                                                          state + "': not a regular file; it is kept\n");
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(1, 3));
  EXPECT_EQ(linked_step(folder.path(), kBestName), 3u) << "the best one that is known";
  fs::remove(state);
  fs::rename(state + ".aside", state);
  write_step(folder.path(), 4, {.keep = 1}, 0.5);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(1, 4));
  EXPECT_EQ(linked_step(folder.path(), kBestName), 1u);
}

// Who took it for an empty one would begin anew there, and then remove what it holds.
TEST(WriteCheckpoint, WhereNoFileDescriptorsAreLeftAFolderIsNotTakenForEmpty) {
  const ScratchFolder folder;
  write_step(folder.path(), 3);
  EXPECT_THAT(steps_in(folder.file("nowhere")), IsEmpty());
  EXPECT_THAT(steps_in(folder.file("last/MANIFEST")), IsEmpty());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  std::string error;
  try {
    (void)steps_in(folder.path());
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(error, "reading the folder '" + folder.path() + "': Too many open files");
}

// A folder that is mounted, here on itself, stays, as would one of another user in a folder with the sticky bit.
TEST(WriteCheckpoint, OneThatCannotBeRemovedHoldsUpNothing) {
  const ScratchFolder folder;
  write_step(folder.path(), 1);
  const std::string first = folder.file(step_name(1));
  if (mount(first.c_str(), first.c_str(), nullptr, MS_BIND, nullptr) != 0) GTEST_SKIP() << "mounting needs root";
  std::string said;
  for (std::uint64_t step = 2; step < 5; ++step) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(write_step(folder.path(), step, {.keep = 1}), folder.file(step_name(step)));
    said = ::testing::internal::GetCapturedStderr();
  }
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(1, 4));
  EXPECT_THAT(said, HasSubstr("lockstep: warning: of the checkpoints before: removing the folder '" + first));
  EXPECT_EQ(umount(first.c_str()), 0);
}

TEST(WriteCheckpoint, WhatNoFileCanHoldIsRefused) {
  const ScratchFolder folder;
  const auto fault = [&](const std::function<void(Contents&)>& edit) {
    ACheckpoint one(3);
    edit(one.contents);
    return usage_error([&] { write_checkpoint(folder.path(), one.contents); });
  };
  EXPECT_THAT(fault([](Contents& all) { all.state.extra = "{"; }), HasSubstr("extra"));
  EXPECT_THAT(fault([](Contents& all) { all.files[0].tensors[0].dtype = "F31"; }),
              HasSubstr("'fc.weight' has a dtype"));
  EXPECT_THAT(fault([](Contents& all) { all.files[0].tensors[0].name = "fc.bias"; }),
              HasSubstr("'fc.bias' is there twice"));
  EXPECT_THAT(fault([](Contents& all) { all.files[0].tensors[0].name = "\xff"; }), HasSubstr("no UTF-8"));
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(WriteCheckpoint, AFullDiskLeavesTheLastOne) {
  const ScratchFolder folder;
  write_step(folder.path(), 1);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  int failures = 0;
  for (rlim_t bytes = 0; bytes < 600; bytes += 7) {  // a write fails after so many bytes of a file
    const rlimit small{bytes, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    bool failed = false;
    try {
      write_step(folder.path(), 2);
    } catch (const Error&) {
      failed = true;
    }
    setrlimit(RLIMIT_FSIZE, &old);
    if (!failed) continue;
    ++failures;
    EXPECT_EQ(find(folder.path())->step, 1u) << bytes;
    EXPECT_EQ(folder.entries(), 2u) << bytes;
  }
  std::signal(SIGXFSZ, before);
  EXPECT_GT(failures, 10);
  write_step(folder.path(), 2);
  EXPECT_EQ(find(folder.path())->step, 2u);
}

TEST(WriteCheckpoint, WhatAKilledOneLeftIsSweptAwayAndWhatIsBeingWrittenIsNot) {
  const ScratchFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    const AsideFolder aside(folder.path());
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(folder.entries(), 1u);
  const AsideFolder living(folder.path());
  write_step(folder.path(), 1);
  EXPECT_EQ(folder.entries(), 3u) << "the step, its link, the living one";
  EXPECT_TRUE(fs::exists(living.path()));
}

// A kill at any time of a save: the one before or the new one is found, and saving goes on.
TEST(WriteCheckpoint, AKillLeavesTheOldOrTheNewOne) {
  const ScratchFolder folder;
  write_step(folder.path(), 1);
  int killed = 0;
  for (int i = 0; i < 60; ++i) {
    const std::uint64_t step = std::uint64_t(2 + i / 2);  // each twice: the second one takes the first one's place
    const pid_t child = fork();
    if (child == 0) {
      write_step(folder.path(), step, {.keep = 2});
      _exit(0);
    }
    usleep(useconds_t(40 * i));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    killed += WIFSIGNALED(status) ? 1 : 0;
    const std::optional<Found> found = find(folder.path());
    ASSERT_TRUE(found);
    EXPECT_THAT(found->skipped, IsEmpty());
    EXPECT_LE(found->step, step);
  }
  EXPECT_GT(killed, 0);
  write_step(folder.path(), 1000, {.keep = 2});
  EXPECT_EQ(find(folder.path())->step, 1000u);
  EXPECT_EQ(steps_in(folder.path()).size() + 1, folder.entries()) << "nothing aside is left";
}

}  // namespace
}  // namespace lockstep::checkpoint
