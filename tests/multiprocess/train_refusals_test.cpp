// Bad input: one clear line from two processes, exit code 2, nothing written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/train_run.h"

namespace lockstep {
namespace {

using testing::By;
using ::testing::HasSubstr;
using testing::Job;
using testing::operator+;
using Flags = testing::Words;
using testing::Words;

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

class TrainRefusals : public ::testing::Test {
 protected:
  // Good flags, to which each case adds its fault.
  Flags good() const { return {"--dataset", "mnist", "--data-path", set_, "--max-steps", "2", "--no-eval"}; }
  Flags with_set(const std::string& set) const {
    return {"--dataset", "mnist", "--data-path", set, "--max-steps", "2"};
  }
  std::string run() const { return folder_.file("run"); }

  // A copy of the good set in which one file is replaced.
  std::string damaged(const std::string& file, const std::string& bytes) const {
    namespace fs = std::filesystem;
    fs::copy(set_, folder_.file("bad"), fs::copy_options::overwrite_existing | fs::copy_options::recursive);
    folder_.write("bad/" + file, bytes);
    return folder_.file("bad");
  }

  void expect_one_line(const Job& job, const Words& words) const {
    const std::string text = job.err();
    EXPECT_EQ(testing::lines(text).size(), 1u) << text;
    EXPECT_EQ(text.rfind("lockstep: error: ", 0), 0u) << text;
    for (const std::string& word : words) EXPECT_THAT(text, HasSubstr(word));
  }

  // Two processes, with a run directory asked for, which must not appear.
  void expect_refused(Flags flags, const Words& words, bool with_run = true) {
    SCOPED_TRACE(::testing::PrintToString(flags));
    const auto before = testing::everything_in(folder_.path());
    if (with_run) flags = flags + Flags{"--output-dir", run()};
    Job job(testing::train_command(By::lockstep, 2, flags));
    EXPECT_EQ(job.wait(), 2);
    expect_one_line(job, words);
    EXPECT_EQ(job.out(), "");
    EXPECT_TRUE(job.nothing_left());
    EXPECT_EQ(testing::everything_in(folder_.path()), before);
  }

  // The initial weights of a model, in a file.
  std::string weights_of(const std::string& model) const {
    std::string file = folder_.file(model + ".safetensors");
    Job job({LOCKSTEP_PROGRAM, "train", "--model", model, "--max-steps", "0", "--save-weights", file});
    EXPECT_EQ(job.wait(), 0) << job.err();
    return file;
  }

  testing::ScratchFolder folder_;
  const std::string set_ = testing::write_mnist(folder_);
};

TEST_F(TrainRefusals, Flags) {
  expect_refused(good() + Flags{"--optt", "adam"}, {"unknown flag --optt", "did you mean --opt?"});
  expect_refused(good() + Flags{"--opt", "adm"}, {"--opt", "'adm'", "did you mean 'adam'?"});
  expect_refused(good() + Flags{"--model", "convnett"}, {"--model", "'convnett'", "did you mean 'convnet'?"});
  expect_refused({"--dataset", "minst"}, {"--dataset", "'minst'", "did you mean 'mnist'?"});
  Job job({LOCKSTEP_PROGRAM, "train", "-n", "0"});
  EXPECT_EQ(job.wait(), 2);
  expect_one_line(job, {"'0'", "from 1 to"});
}

TEST_F(TrainRefusals, FlagsOfALauncherForAWorkerWithoutOne) {
  const std::string trainer = std::filesystem::path(LOCKSTEP_PROGRAM).replace_filename("lockstep-trainer").string();
  for (const Flags& flags : {Flags{"--max-restarts", "3"}, Flags{"-n", "2"}}) {
    Job job(Flags{trainer} + flags);
    EXPECT_EQ(job.wait(), 2);
    expect_one_line(job, {"use lockstep train"});
  }
}

TEST_F(TrainRefusals, MissingFiles) {
  expect_refused(with_set(folder_.file("nowhere")), {"train-images-idx3-ubyte", folder_.file("nowhere")});
  std::filesystem::remove(set_ + "/t10k-labels-idx1-ubyte");
  expect_refused(with_set(set_), {"no MNIST file 't10k-labels-idx1-ubyte'"});
}

TEST_F(TrainRefusals, DamagedFiles) {
  const std::string images = testing::idx_images(testing::kTrainImages, 1);
  const std::string labels = testing::idx_labels(testing::kTrainImages, 1);
  expect_refused(with_set(damaged("train-images-idx3-ubyte", images.substr(0, 1000))),
                 {"bad/train-images-idx3-ubyte", "truncated", "offset 16", "196000 bytes"});
  expect_refused(with_set(damaged("train-images-idx3-ubyte", labels)),
                 {"bad/train-images-idx3-ubyte", "magic number 0x00000801 at offset 0", "0x00000803 expected"});
  std::string wrong = labels;
  wrong[8 + 77] = 10;
  expect_refused(with_set(damaged("train-labels-idx1-ubyte", wrong)),
                 {"bad/train-labels-idx1-ubyte", "label 10 of sample 77 at offset 85", "0 ... 9 expected"});
}

TEST_F(TrainRefusals, BatchesAndShards) {
  expect_refused(good() + Flags{"--logical-shards", "1"}, {"--logical-shards 1 is less than the 2 processes"});
  expect_refused(good() + Flags{"--global-batch-size", "24", "--logical-shards", "5"},
                 {"24 samples does not divide into 5 shards", "--logical-shards 4"});
  expect_refused(good() + Flags{"--batch-size", "10", "--global-batch-size", "24"}, {"is 20", "is 24"});
  expect_refused(good() + Flags{"--batch-size", "126"}, {"the global batch is 252, the set has 250"});
}

TEST_F(TrainRefusals, SyncBatchNorm) {
  expect_refused(good() + Flags{"--sync-bn", "--model", "mlp"}, {"--sync-bn has no meaning for --model mlp"});
  expect_refused(good() + Flags{"--sync-bn", "--grad-accum-steps", "2", "--batch-size", "5"},
                 {"--sync-bn needs one shard per process, but there are 4 for 2"});
}

TEST_F(TrainRefusals, PicturesThatAModelCannotTake) {
  expect_refused(good() + Flags{"--model", "vgg11"},
                 {"model 'vgg11' cannot take pictures of 28x28: pictures of 32x32 or larger expected"});
}

// By a recipe, a file of flags, or against one of these.
TEST_F(TrainRefusals, RecipesAndFilesOfFlags) {
  expect_refused({"--recipe", "mnist-sinlge"}, {"--recipe", "'mnist-sinlge'", "did you mean 'mnist-single'?"});
  expect_refused(good() + Flags{"--config", folder_.write("own.json", R"({"batchsize": 3})")},
                 {"own.json': there is no flag 'batchsize': did you mean 'batch_size'?"});
  expect_refused(good() + Flags{"--config", folder_.write("own.json", R"({"opt": "adm"})")},
                 {"'adm'", "did you mean 'adam'?"});
  expect_refused(with_set(set_) + Flags{"--recipe", "mnist-distributed", "--parallel", "dp", "--replicas", "2"},
                 {"--nproc-per-node 2 with --parallel dp"});
  expect_refused({"--recipe", "finetune-resnet34", "--data-path", set_, "--loss", "mse"},
                 {"--loss mse with --dataset imagefolder"});
  expect_refused(with_set(set_) + Flags{"--monitor", "mae", "--save-every", "1ep"},
                 {"--monitor mae with --dataset mnist, whose targets are classes: loss, top1 or top5"});
}

TEST_F(TrainRefusals, TablesThatLackColumnsOrNumbers) {
  const Flags csv = {"--dataset", "csv", "--model", "mlp", "--max-steps", "2", "--no-eval", "--data-path"};
  const std::string words = folder_.write("words.csv", "a,y\n1,2\n3,four\n");
  expect_refused(csv + Flags{words}, {words + ":3: column 2 (y) 'four' is not a number"});
  const std::string numbers = folder_.write("numbers.csv", "a,y\n1,2\n3,4\n");
  for (const char* flag : {"--target", "--columns"})
    expect_refused(csv + Flags{numbers, flag, "price"}, {"'" + numbers + "'", "price"});
}

TEST_F(TrainRefusals, PatternsOfNoParameter) {
  expect_refused(good() + Flags{"--model", "convnet", "--freeze", "layr1.*"},
                 {"--freeze 'layr1.*' fits the name of no parameter: did you mean 'layer1.*'?"});
}

TEST_F(TrainRefusals, OutputDirectories) {
  expect_refused(good() + Flags{"--output-dir", set_ + "/t10k-labels-idx1-ubyte/run"}, {"Not a directory"}, false);
  expect_refused(good() + Flags{"--output-dir", set_ + "/t10k-labels-idx1-ubyte"}, {"output directory"}, false);
  expect_refused(good() + Flags{"--output-dir", "/proc/run"}, {"'/proc/run'"}, false);
  folder_.write("run/config.json", "{}");
  expect_refused(good(), {run(), "already holds a run", "--overwrite"});
  EXPECT_EQ(testing::read_file(folder_.file("run/config.json")), "{}");
}

TEST_F(TrainRefusals, PlacesForTheWeightsAreLookedAtBeforeTraining) {
  for (const std::string& file :
       {folder_.file("nowhere/w.safetensors"), set_ + "/t10k-labels-idx1-ubyte/w.safetensors", set_, run(),
        folder_.file("run/sub/w.safetensors"), std::string("/proc/w.safetensors")})
    expect_refused(good() + Flags{"--save-weights", file}, {"cannot write '" + file + "'"});
}

TEST_F(TrainRefusals, WeightsOfAnotherModelWithEveryDifference) {
  const std::string mlp = weights_of("mlp");
  expect_refused(good() + Flags{"--model", "convnet", "--weights", mlp},
                 {"mlp.safetensors does not fit", "missing fc.weight", "missing layer1.1.running_mean",
                  "missing layer2.0.bias", "unexpected fc1.weight", "unexpected fc2.bias"});
  // A shape: the header says [10,128] with the bytes of [128,10].
  std::string bytes = testing::read_file(mlp);
  bytes.replace(bytes.find("[10,128]"), 8, "[128,10]");
  folder_.write("shape.safetensors", bytes);
  expect_refused(good() + Flags{"--model", "mlp", "--weights", folder_.file("shape.safetensors")},
                 {"shape of fc2.weight is [128, 10], [10, 128] expected"});
}

TEST_F(TrainRefusals, DamagedWeights) {
  const std::string bytes = testing::read_file(weights_of("mlp"));
  const auto refuse = [&](const std::string& content, const Words& words) {
    folder_.write("w.safetensors", content);
    expect_refused(good() + Flags{"--model", "mlp", "--weights", folder_.file("w.safetensors")}, words);
  };
  refuse(bytes.substr(0, bytes.size() - 4), {"w.safetensors'", "offset"});
  refuse("short", {"w.safetensors'", "ends before", "offset 5"});
  refuse(std::string(8, '\x7f') + bytes.substr(8), {"w.safetensors'", "header"});
  expect_refused(good() + Flags{"--weights", folder_.file("no.safetensors")}, {"no.safetensors'"});
}

// Files of torch.save: nothing of them is executed, and what is refused is named.
TEST_F(TrainRefusals, WeightsOfPythonThatAreNone) {
  Job exported({LOCKSTEP_PROGRAM, "checkpoint", "export", weights_of("mlp"), folder_.file("mlp.pt")});
  ASSERT_EQ(exported.wait(), 0) << exported.err();
  const std::string whole = testing::read_file(folder_.file("mlp.pt"));
  const auto refuse = [&](const std::string& content, const Words& words) {
    folder_.write("w.pt", content);
    expect_refused(good() + Flags{"--model", "mlp", "--weights", folder_.file("w.pt")}, words);
  };
  refuse(whole.substr(0, whole.size() / 2), {"w.pt'"});
  refuse("no weights at all", {"w.pt'"});
  std::string other = whole;  // a call of another function makes the tensors
  for (std::size_t at = 0; (at = other.find("_rebuild_tensor_v2", at)) != std::string::npos; ++at) other[at + 9] = 'x';
  refuse(other, {"w.pt'", "no weights", "offset"});
  const std::string touched = folder_.file("touched");
  refuse("\x80\x02cposix\nsystem\nX" + std::string(1, char(6 + touched.size())) + std::string(3, '\0') + "touch " +
             touched + "\x85R.",
         {"w.pt'"});
  EXPECT_FALSE(std::filesystem::exists(touched));
}

TEST_F(TrainRefusals, ADamagedCheckpointWithFileTensorAndOffset) {
  const std::string saved = folder_.file("saved");
  Job first(testing::train_command(By::lockstep, 1,
                                   good() + Flags{"--model", "mlp", "--output-dir", saved, "--save-every", "2"}));
  ASSERT_EQ(first.wait(), 0) << first.err();
  const std::string file = saved + "/checkpoints/step-00000002/model.safetensors";
  const std::string whole = testing::read_file(file);
  std::string flipped = whole;
  flipped.back() ^= 1;
  const auto refuse = [&](const std::string& name, const std::string& content, const Words& words) {
    folder_.write("saved/checkpoints/step-00000002/" + name, content);
    expect_refused(good() + Flags{"--model", "mlp", "--resume", saved}, words);
  };
  refuse("model.safetensors", flipped, {"'" + file + "': tensor 'fc2.weight' is not what was written, at offset "});
  refuse("model.safetensors", whole.substr(0, 1000), {file, "ends here, after 1000 of ", "at offset 1000"});
  refuse("MANIFEST", "", {"MANIFEST", "offset 0"});
}

TEST_F(TrainRefusals, SharedMemoryTooSmall) {
  const auto before = testing::everything_in(folder_.path());
  Flags command = testing::train_command(By::lockstep, 2, good() + Flags{"--output-dir", run()});
  // A limit on the size of files is one on the segment too.
  command = Flags{"/bin/bash", "-c", "ulimit -f 1024; exec \"$@\"", "bash"} + command;
  Job job(command);
  EXPECT_EQ(job.wait(), 2);
  expect_one_line(job, {"shared memory too small", "MiB more"});
  EXPECT_EQ(testing::everything_in(folder_.path()), before);
}

TEST_F(TrainRefusals, ProcessCountUnderTorchrun) {
  Job job({LOCKSTEP_PROGRAM, "train", "-n", "2"}, testing::rank_variables(0, 2, 29511));
  EXPECT_EQ(job.wait(), 2);
  expect_one_line(job, {"--nproc-per-node 2", "torchrun has started 2 processes"});
}

TEST_F(TrainRefusals, OnceFromRanksWithoutAnAgent) {
  const Flags command = Flags{LOCKSTEP_PROGRAM, "train"} + with_set(damaged("train-labels-idx1-ubyte", "")) +
                        Flags{"--output-dir", run()};
  Job zero(command, testing::rank_variables(0, 2, 29512));
  Job one(command, testing::rank_variables(1, 2, 29512));
  EXPECT_EQ(zero.wait(), 2);
  EXPECT_EQ(one.wait(), 2);
  EXPECT_EQ(testing::lines(zero.err() + one.err()).size(), 1u) << zero.err() << one.err();
  EXPECT_THAT(zero.err() + one.err(), HasSubstr("truncated at offset 0"));
  EXPECT_FALSE(std::filesystem::exists(run()));
}

TEST_F(TrainRefusals, OnceUnderMpirun) {
  if (const std::string reason = testing::why_not(By::mpirun); !reason.empty()) GTEST_SKIP() << reason;
  const std::vector<std::pair<Flags, std::string>> cases = {
      {with_set(damaged("train-labels-idx1-ubyte", "")), "truncated at offset 0"},
      {good() + Flags{"--logical-shards", "1"}, "--logical-shards 1 is less"},
      {good() + Flags{"--opt", "adm"}, "did you mean 'adam'?"}};
  for (const auto& [flags, words] : cases) {
    Job job(testing::train_command(By::mpirun, 2, flags + Flags{"--output-dir", run()}));
    EXPECT_EQ(job.wait(), 2);
    EXPECT_EQ(count(job.err(), "lockstep: "), 1) << job.err();
    EXPECT_THAT(job.err(), HasSubstr(words));
    EXPECT_TRUE(job.nothing_left());
    EXPECT_FALSE(std::filesystem::exists(run()));
  }
}

}  // namespace
}  // namespace lockstep
