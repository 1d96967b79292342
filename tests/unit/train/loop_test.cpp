// What a run holds, and until when.

#include "lockstep/train/loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/data/tensor_batches.h"
#include "lockstep/train/own_names.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/what_of.h"

// A disk that stands still for a second, or until the lock of the run directory is free: what is in the place of libc's
// fsync looks, in the thread that saves.
namespace {

std::string lock_file;  // set before there is another thread
const std::thread::id training = std::this_thread::get_id();
std::atomic<bool> looks{false}, was_free{false};

bool is_free() {
  const lockstep::base::UniqueFd file(::open(lock_file.c_str(), O_RDWR | O_CLOEXEC));
  return file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

extern "C" int fsync(int fd) {
  if (looks && std::this_thread::get_id() != training) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (!was_free && std::chrono::steady_clock::now() < until) was_free = is_free();
    looks = false;
  }
  return int(syscall(SYS_fsync, fd));
}

namespace lockstep::train {
namespace {

struct FailingNet : torch::nn::Module {
  at::Tensor forward(const at::Tensor& rows) {
    if (++passes == 2) throw Error("the second step fails");
    return layer(rows);
  }
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(3, 2));
  int passes = 0;
};

TEST(Loop, TheDirectoryIsLockedUntilTheLastSaveHasEnded) {
  const testing::ScratchFolder folder;
  const Additions additions{
      .models = {{"net", [](const models::ImageTask&) { return std::make_shared<FailingNet>(); }}},
      .datasets = {{.name = "rows", .classes = 2, .samples = [](const Opening&) {
                      return data::tensors(at::ones({8, 3}), at::zeros({8}, at::kLong));
                    }}}};
  const std::string run = folder.file("run");
  const char* const argv[] = {"net",          "--no-eval", "--batch-size", "2",    "--epochs",     "2",
                              "--save-every", "1",         "--resume",     "auto", "--output-dir", run.c_str()};
  const Options options = parse_options(int(std::size(argv)), argv, names_of(additions, "net")).options;
  lock_file = run + "/run.lock";
  looks = true;
  support::run_ranks(support::RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
    EXPECT_EQ(support::what_of([&] { Loop(options, comm::World({}, group), additions).run(); }),
              "the second step fails");
  });
  EXPECT_FALSE(looks) << "it was saved";
  EXPECT_FALSE(was_free);
  EXPECT_TRUE(is_free()) << "then it is";
  EXPECT_TRUE(std::filesystem::exists(run + "/checkpoints/step-00000001"));
}

}  // namespace
}  // namespace lockstep::train
