// The flags of a program that adds models and data sets.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/train/launcher_flags.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"
#include "tests/unit/train/parsed_options.h"

namespace lockstep::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

OwnNames names() {
  return {.program = "mine",
          .models = {"net", "other"},
          .sets = {{.name = "waves", .files = data::SetFiles::own_samples, .transforms = "none"},
                   {.name = "slopes", .files = data::SetFiles::own_numbers, .transforms = "none"},
                   {.name = "dogs", .files = data::SetFiles::own_pictures, .transforms = "none"}}};
}

Parsed parse_own(std::vector<const char*> flags) {
  flags.insert(flags.begin(), "mine");
  return parse_options(int(flags.size()), flags.data(), names());
}

std::string own_refusal(const std::vector<const char*>& flags) {
  return testing::usage_error([&] { parse_own(flags); });
}

TEST(OwnOptions, TheFirstOfEachIsTheDefault) {
  const Options options = parse_own({}).options;
  EXPECT_EQ(options.model, "net");
  EXPECT_EQ(options.dataset, "waves");
  EXPECT_TRUE(is_own_model(options));
  EXPECT_FALSE(is_regression(options));
  EXPECT_EQ(options.transforms, "none");
  EXPECT_EQ(options_as_flags(options), "--transforms none") << "only what differs from this program's defaults";
  EXPECT_EQ(parse_options(0, nullptr).options.model, "convnet");
}

TEST(OwnOptions, ANewNumberSetIsARegression) {
  const Options options = parse_own({"--dataset", "slopes"}).options;
  EXPECT_EQ(options.loss, "mse");
  EXPECT_EQ(options.checkpoints.monitor, "loss");
}

TEST(OwnOptions, BuiltInOnesStay) {
  const Options options = parse_own({"--model", "mlp", "--dataset", "digits"}).options;
  EXPECT_FALSE(is_own_model(options));
  EXPECT_EQ(set_of(options).files, data::SetFiles::none);
  EXPECT_EQ(parse_own({"--dataset", "dogs", "--data-path", "somewhere"}).options.data_path, "somewhere");
  EXPECT_EQ(parse_own({"--dataset", "dogs", "--transforms", "imagenet"}).options.transforms, "imagenet");
  EXPECT_EQ(parse_own({"--recipe", "mnist-single", "--data-path", "x", "--model", "net"}).options.model, "net");
}

TEST(OwnOptions, HelpIsTheProgramsOwn) {
  EXPECT_THAT(parse_own({"--help"}).text,
              AllOf(StartsWith("usage: mine [options]"), HasSubstr("waves"), HasSubstr("lockstep run -n N mine"),
                    Not(HasSubstr("lockstep train ["))));
}

TEST(OwnOptions, RefusesWhatHasNoMeaning) {
  EXPECT_THAT(own_refusal({"--model", "nett"}), HasSubstr("net"));
  EXPECT_EQ(own_refusal({"--head", "32,relu,2"}),
            "--head 32,relu,2 has no meaning for --model net, which is the program's own");
  for (const char* flag : {"--transforms=none", "--mixup-alpha=0.2", "--cutmix-alpha=1"})
    EXPECT_THAT(own_refusal({flag}), HasSubstr("whose samples are the program's own tensors")) << flag;
  EXPECT_THAT(own_refusal({"--auto-augment", "ra"}), HasSubstr("it is for cifar and imagenet"));
  EXPECT_THAT(own_refusal({"--synthetic"}), HasSubstr("only the program knows"));
  EXPECT_THAT(own_refusal({"--cache-images", "5"}), HasSubstr("the program's own: it is for imagefolder"));
  EXPECT_THAT(own_refusal({"--train-split", "a"}), HasSubstr("has no meaning for --dataset waves"));
  EXPECT_THAT(own_refusal({"--loss", "mse"}), HasSubstr("whose targets are classes"));
  EXPECT_THAT(own_refusal({"--dataset", "slopes", "--model", "convnet"}), HasSubstr("is for pictures"));
}

TEST(OwnOptions, TheRecordOfARunIsAConfigThatRepeatsIt) {
  const testing::ScratchFolder folder;
  for (const char* set : {"waves", "slopes"}) {
    const std::string record = options_json(parse_own({"--dataset", set}).options);
    const std::string path = folder.write("config.json", record);
    EXPECT_EQ(options_json(parse_own({"--config", path.c_str()}).options), record) << set;
  }
  const std::string other = folder.write("other.json", R"({"dataset": "waves", "transforms": "imagenet"})");
  EXPECT_THAT(own_refusal({"--config", other.c_str()}), HasSubstr("--transforms has no meaning for --dataset waves"));
}

TEST(OwnOptions, SayWhoStartsProcesses) {
  const auto refusal_of = [](const std::vector<const char*>& flags, const std::string& launcher) {
    return testing::usage_error([&] { require_no_launcher_flags(parse_own(flags).options, launcher, 2); });
  };
  EXPECT_EQ(
      refusal_of({"-n", "2"}, "alone"),
      "--nproc-per-node 2 is the launcher's, and this program was started without one: use lockstep run -n N mine");
  EXPECT_EQ(refusal_of({"-n", "3"}, "lockstep"),
            "--nproc-per-node 3 is the launcher's, and lockstep has started 2 processes already: leave it out");
}

}  // namespace
}  // namespace lockstep::train
