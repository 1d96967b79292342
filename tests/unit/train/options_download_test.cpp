#include "lockstep/train/options_download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "parsed_options.h"
#include "tests/support/usage_error.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::usage_error;

TEST(Download, GoesIntoTheUsersCacheUnlessAFolderIsNamed) {
  std::map<std::string, std::string> variables = {{"XDG_CACHE_HOME", "/cache"}, {"HOME", "/users/me"}};
  const auto variable = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  EXPECT_EQ(cache_folder("mnist", variable), "/cache/lockstep/mnist");
  variables["XDG_CACHE_HOME"] = "relative";  // is to be ignored, says the specification
  EXPECT_EQ(cache_folder("mnist", variable), "/users/me/.cache/lockstep/mnist");
  variables.erase("HOME");
  EXPECT_THAT(usage_error([&] { cache_folder("mnist", variable); }),
              HasSubstr("--data-path DIR or --index-cache DIR names"));
  EXPECT_EQ(options({"--dataset", "mnist", "--download", "--data-path", "d"}).data_path, "d");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_THAT(options({"--dataset", "cifar10", "--download"}).data_path, ::testing::EndsWith("/lockstep/cifar10"));
}

TEST(Download, IsThatOfLockstepData) {
  const Options o = options({"--dataset", "mnist", "--download", "--data-path", "d", "--download-mirror", "http://m/"});
  EXPECT_THAT(download_words(o), ElementsAre("fetch", "mnist", "--to", "d", "--mirror", "http://m/"));
  EXPECT_EQ(usage_error([&] { require_no_download(o); }),
            "--download is for lockstep train, before it starts processes: lockstep data fetch mnist --to d --mirror "
            "http://m/");
  require_no_download({});
}

TEST(Download, WorkersFindTheFilesThere) {
  const Options o{.data_path = "d"};
  EXPECT_THAT(words_after_download({"--download", "--dataset", "mnist"}, o),
              ElementsAre("--dataset", "mnist", "--data-path", "d"));
  EXPECT_THAT(words_after_download({"--data_path", "x", "--download_mirror=u", "--seed", "3", "--download"}, o),
              ElementsAre("--seed", "3", "--data-path", "d"));
  EXPECT_THAT(words_after_download({"--data-dir=x", "--download-mirror", "u", "-n", "2"}, o),
              ElementsAre("-n", "2", "--data-path", "d"));
}

TEST(Download, FoldersMayBeRememberedInTheUsersCache) {
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  std::vector<const char*> flags = {"--dataset",   "imagefolder", "--model",        "resnet18",
                                    "--data-path", "/data/./x",   "--cache-dataset"};
  EXPECT_EQ(options(flags).index_cache, "/cache/lockstep/index/data/x");
  flags.insert(flags.end(), {"--index-cache", "/cache/lockstep/index/data/x"});
  EXPECT_TRUE(options(flags).cache_dataset) << "as the record of a run has it";
  flags.back() = "y";
  EXPECT_THAT(refusal(flags), HasSubstr("give one of the two"));
  EXPECT_THAT(refusal({"--cache-dataset"}), HasSubstr("--cache-dataset has no meaning for --dataset digits"));
}

TEST(Download, WhatCannotBeIsRefused) {
  EXPECT_EQ(refusal({"--dataset", "mnist"}),
            "--dataset mnist needs --data-path DIR, the folder with its files; lockstep train --dataset mnist "
            "--download brings them");
  EXPECT_THAT(refusal({"--dataset", "imagefolder", "--download"}), HasSubstr("has no well-known address: mnist"));
  EXPECT_THAT(refusal({"--download"}), HasSubstr("--download with --dataset digits"));
  EXPECT_THAT(refusal({"--dataset", "mnist", "--download", "--synthetic"}), HasSubstr("--download with --synthetic"));
  EXPECT_THAT(refusal({"--download-mirror", "http://m/"}), HasSubstr("no meaning without --download"));
}

}  // namespace
}  // namespace lockstep::train
