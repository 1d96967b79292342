// `lockstep data`: exit codes, real files, signals, full disks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/file_server.h"
#include "tests/support/job.h"
#include "tests/support/real_data.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using testing::FileServer;
using ::testing::HasSubstr;
using testing::Job;
using testing::ScratchFolder;

struct Done {
  int code;
  std::string out;
  std::string err;
};

Done run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {LOCKSTEP_PROGRAM, "data"});
  Job job(arguments);
  const int code = job.wait();
  return {code, job.out(), job.err()};
}

void expect_refused(const std::vector<std::string>& arguments, const std::string& words) {
  const Done done = run(arguments);
  EXPECT_EQ(done.code, 2) << words;
  EXPECT_EQ(testing::lines(done.err).size(), 1u) << done.err;
  EXPECT_THAT(done.err, HasSubstr(words));
  EXPECT_EQ(done.out, "");
}

TEST(DataUsage, ExplainsItself) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"fetch", "--help"}, {"inspect", "-h"}}) {
    const Done done = run(arguments);
    EXPECT_EQ(done.code, 0);
    EXPECT_THAT(done.out, HasSubstr("usage: lockstep data"));
  }
}

TEST(DataUsage, RefusesWithOneLine) {
  expect_refused({}, "no command given");
  expect_refused({"inspct"}, "unknown command 'inspct': did you mean 'inspect'?");
  expect_refused({"inspect"}, "one folder or file expected, 0 given");
  expect_refused({"inspect", "a", "--quik"}, "unknown option '--quik': did you mean '--quick'?");
  expect_refused({"inspect", "a", "--quick=yes"}, "--quick takes no value");
  expect_refused({"inspect", "a", "--threads", "0"}, "--threads '0': out of range; wanted an integer from 1 to 1024");
  expect_refused({"inspect", "no-such-folder"}, "'no-such-folder': No such file or directory");
  expect_refused({"fetch"}, "one data set expected (mnist, ");
  expect_refused({"fetch", "minst"}, "did you mean 'mnist'?");
  expect_refused({"fetch", "mnist", "--to"}, "--to needs a value");
  expect_refused({"fetch", "mnist", "--mirror", "ftp://here"}, "mirror 'ftp://here'");
  expect_refused({"fetch", "mnist", "--mirror", "http://here:99999/"}, "mirror 'http://here:99999/': no address: ");
  expect_refused({"fetch", "mnist", "--mirror", "http://here/\r\nX: y"}, "mirror 'http://here/\\r\\nX: y': ");
  expect_refused({"inspect", "no\nfolder\x1b[2J"}, "'no\\nfolder\\x1b[2J': No such file or directory");
  expect_refused({"fetch", "mni\nst"}, "unknown data set 'mni\\nst'");
  expect_refused({"fetch", "mnist", "--timeout", "soon"},
                 "--timeout 'soon': not an integer; wanted an integer from 1 to 86400");
}

TEST(DataInspect, ItsExitCodeTellsWhetherAllIsWhole) {
  const ScratchFolder folder;
  folder.write("set/a/broken.jpg", "no picture");
  const Done text = run({"inspect", folder.file("set")});
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.out, EndsWith("1 fault:\n  '" + folder.file("set/a/broken.jpg") +
                                 "': neither JPEG nor PNG by its first bytes\n"));
  EXPECT_EQ(text.err, "");
  const Done json = run({"inspect", "--json", folder.file("set")});
  EXPECT_EQ(json.code, 1);
  EXPECT_EQ(nlohmann::json::parse(json.out)["faults"].size(), 1u);
}

class DataFetch : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = testing::missing_data(testing::mnist_files()); !why.empty()) GTEST_SKIP() << why;
    mnist_ = testing::real_data() / "mnist";
    server_ = std::make_unique<FileServer>(mnist_.string());
  }

  std::vector<std::string> arguments(const std::string& how) const {
    return {"fetch", "mnist", "--to", folder_.file("mnist"), "--mirror", server_->url(how)};
  }
  std::string part() const { return folder_.file("mnist/train-images-idx3-ubyte.gz.part"); }

  // The command, started by a shell that has set limits first.
  std::vector<std::string> under_shell(const std::string& before, const std::string& how) const {
    std::vector<std::string> words = {"/bin/sh", "-c", before + "; exec \"$@\"", "sh", LOCKSTEP_PROGRAM, "data"};
    for (const std::string& word : arguments(how)) words.push_back(word);
    return words;
  }

  void expect_whole() const {
    for (const auto& file : fs::directory_iterator(folder_.file("mnist"))) {
      EXPECT_EQ(testing::read_file(file.path()), testing::read_file(mnist_ / file.path().filename())) << file;
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.file("mnist")), fs::directory_iterator()), 4);
  }

  fs::path mnist_;
  ScratchFolder folder_;
  std::unique_ptr<FileServer> server_;
};

TEST_F(DataFetch, BringsTheRealFiles) {
  const Done first = run(arguments("plain"));
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, "mnist: whole in '" + folder_.file("mnist") + "'\n");
  EXPECT_THAT(first.err, HasSubstr("train-images-idx3-ubyte.gz: 100 %\n"));
  expect_whole();
  const Done second = run(arguments("plain"));
  EXPECT_EQ(second.code, 0);
  EXPECT_EQ(second.out, "mnist: already there, whole, in '" + folder_.file("mnist") + "'\n");
  EXPECT_EQ(second.err, "");
  EXPECT_EQ(server_->requests().size(), 4u);
  EXPECT_EQ(run({"inspect", folder_.file("mnist")}).code, 0);
}

TEST_F(DataFetch, CanBeQuiet) {
  std::vector<std::string> words = arguments("plain");
  words.emplace_back("--quiet");
  const Done done = run(words);
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(done.out + done.err, "");
}

TEST_F(DataFetch, InterruptedGoesOnLater) {
  std::vector<std::string> words = arguments("slow");
  words.insert(words.begin(), {LOCKSTEP_PROGRAM, "data"});
  {
    Job job(words);
    std::error_code none_yet;
    testing::wait_until([&] { return fs::exists(part(), none_yet) && fs::file_size(part(), none_yet) > 100'000; });
    job.signal(SIGINT);
    EXPECT_EQ(job.wait(), 128 + SIGINT);
  }
  const std::size_t kept = fs::file_size(part());
  EXPECT_LT(kept, fs::file_size(mnist_ / "train-images-idx3-ubyte.gz"));
  EXPECT_EQ(run(arguments("plain")).code, 0);
  EXPECT_THAT(server_->requests(),
              ::testing::Contains("plain train-images-idx3-ubyte.gz " + std::to_string(kept) + "-"));
  expect_whole();
}

TEST_F(DataFetch, AFullDiskIsAFailureThatLeavesThePart) {
  constexpr int kBlocks = 2000;  // of 512 bytes
  Job job(under_shell("ulimit -f " + std::to_string(kBlocks), "plain"));
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), HasSubstr("lockstep: error: writing '" + part() + "': File too large"));
  EXPECT_EQ(fs::file_size(part()), kBlocks * 512u);
  EXPECT_EQ(run(arguments("plain")).code, 0);
  expect_whole();
}

// Into the user's cache, where the next run finds it; a set that cannot be had starts no process.
TEST_F(DataFetch, ATrainerBringsItsSetWhereAsked) {
  const auto train = [&](const std::string& set, const std::string& url) {
    Job job({LOCKSTEP_PROGRAM, "train", "--dataset", set, "--download", "--download-mirror", url, "--model", "mlp",
             "-n", "2", "--fast-dev-run"},
            {"XDG_CACHE_HOME=" + folder_.path()});
    const int code = job.wait();
    return Done{code, job.out(), job.err()};
  };
  const Done first = train("mnist", server_->url("plain"));
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("mnist: whole in '" + folder_.file("lockstep/mnist") + "'\n"));
  EXPECT_THAT(first.out, HasSubstr("done: 1 steps"));
  EXPECT_EQ(server_->requests().size(), 4u);
  EXPECT_EQ(train("mnist", server_->url("plain")).code, 0);
  EXPECT_EQ(server_->requests().size(), 4u) << "it is there";
  const Done none = train("cifar10", server_->url());
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, EndsWith("cifar-10-binary.tar.gz: HTTP 404\n"));
  EXPECT_TRUE(fs::is_empty(folder_.file("lockstep/cifar10")));
}

TEST_F(DataFetch, AServerWithoutTheFilesIsAFailure) {
  const Done done = run({"fetch", "cifar10", "--to", folder_.file("cifar"), "--mirror", server_->url()});
  EXPECT_EQ(done.code, 1);
  EXPECT_THAT(done.err, EndsWith("cifar-10-binary.tar.gz: HTTP 404\n"));
  EXPECT_TRUE(fs::is_empty(folder_.file("cifar")));
}

}  // namespace
}  // namespace lockstep
