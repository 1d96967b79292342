#include "lockstep/launch/output/logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::launch {
namespace {

using lockstep::testing::ScratchFolder;
using lockstep::testing::usage_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Sink = StreamLog::Sink;

TEST(StdMap, OneValueForAllRanks) {
  EXPECT_EQ(StdMap().of(0), Std::none);
  for (int value = 0; value <= 3; ++value) EXPECT_EQ(StdMap::parse("-r", std::to_string(value)).of(7), Std(value));
}

TEST(StdMap, ByRankWithNoneForTheOthers) {
  const StdMap map = StdMap::parse("-r", "0:3,12:1,2:2");
  EXPECT_EQ(map.of(0), Std::all);
  EXPECT_EQ(map.of(1), Std::none);
  EXPECT_EQ(map.of(2), Std::err);
  EXPECT_EQ(map.of(12), Std::out);
}

TEST(StdMap, RefusesOtherText) {
  for (const char* text : {"", "4", "00", "-1", "0:4", "0:", ":1", "0:3,", ",", "0:3,1", "a:1", "0:1 ", "-1:1",
                           "0:1;1:2", "99999999999:1"})
    EXPECT_THAT(usage_error([&] { StdMap::parse("--tee", text); }), HasSubstr("as in 0:3,1:2")) << text;
  const std::string twice = usage_error([] { StdMap::parse("--tee", "0:3,0:1"); });
  EXPECT_THAT(twice, HasSubstr("--tee '0:3,0:1': local rank 0 is named twice"));
}

TEST(Logs, RanksOnTheConsole) {
  EXPECT_THAT(parse_ranks("--local-ranks-filter", ""), ElementsAre());
  EXPECT_THAT(parse_ranks("--local-ranks-filter", "0,12,3"), ElementsAre(0, 12, 3));
  for (const char* text : {"a", "1,", "-1", "1 2"})
    EXPECT_THAT(usage_error([&] { parse_ranks("--local-ranks-filter", text); }), HasSubstr(text));
}

TEST(Logs, FiltersWithTwoCommasForOne) {
  EXPECT_THAT(parse_filters("--f", ""), ElementsAre());
  EXPECT_THAT(parse_filters("--f", "apple,a,,b"), ElementsAre("apple", "a,b"));
  EXPECT_THAT(usage_error([] { parse_filters("--f", "apple,"); }), HasSubstr("an empty filter"));
}

// What DefaultLogsSpecs.reify of torch 2.11 gives for local ranks 0 and 1.
struct Rule {
  const char* redirects;
  const char* tee;
  std::vector<int> console_ranks;
  Sink out[2], err[2];
  bool console_out[2], console_err[2];
};

TEST(Logs, FollowTheRulesOfTorchrun) {
  constexpr Sink I = Sink::inherited, N = Sink::null, F = Sink::file;
  const Rule rules[] = {
      {"0", "0", {}, {I, I}, {I, I}, {false, false}, {false, false}},
      {"3", "0", {}, {F, F}, {F, F}, {false, false}, {false, false}},
      {"1", "0", {}, {F, F}, {I, I}, {false, false}, {false, false}},
      {"2", "0", {}, {I, I}, {F, F}, {false, false}, {false, false}},
      {"0:1,1:2", "0", {}, {F, I}, {I, F}, {false, false}, {false, false}},
      {"1:3", "0", {}, {I, F}, {I, F}, {false, false}, {false, false}},
      {"0", "3", {}, {F, F}, {F, F}, {true, true}, {true, true}},
      {"0", "1", {}, {F, F}, {I, I}, {true, true}, {false, false}},
      {"0", "1:2", {}, {I, I}, {I, F}, {false, false}, {false, true}},
      {"3", "0:1", {}, {F, F}, {F, F}, {true, false}, {false, false}},
      // The filter of ranks: no copy to the console, and /dev/null for what would be inherited.
      {"0", "0", {0}, {I, N}, {I, N}, {false, false}, {false, false}},
      {"3", "0", {0}, {F, F}, {F, F}, {false, false}, {false, false}},
      {"1", "0", {1}, {F, F}, {N, I}, {false, false}, {false, false}},
      {"0", "3", {1}, {F, F}, {F, F}, {false, true}, {false, true}},
      {"0", "1", {0, 7}, {F, F}, {I, N}, {true, false}, {false, false}},
      {"0", "0", {5}, {N, N}, {N, N}, {false, false}, {false, false}},
  };
  for (const Rule& rule : rules) {
    SCOPED_TRACE(std::string("-r ") + rule.redirects + " -t " + rule.tee);
    LogOptions options;
    options.redirects = StdMap::parse("-r", rule.redirects);
    options.tee = StdMap::parse("-t", rule.tee);
    options.console_ranks = rule.console_ranks;
    const auto logs = plan_logs(options, "/logs/run", 2, 2);
    bool file = false;
    for (const std::size_t rank : {0U, 1U}) {
      SCOPED_TRACE(rank);
      const std::string folder = "/logs/run/attempt_2/" + std::to_string(rank);
      EXPECT_EQ(logs[rank].out.sink, rule.out[rank]);
      EXPECT_EQ(logs[rank].err.sink, rule.err[rank]);
      EXPECT_EQ(logs[rank].out.console, rule.console_out[rank]);
      EXPECT_EQ(logs[rank].err.console, rule.console_err[rank]);
      EXPECT_EQ(logs[rank].out.file, rule.out[rank] == F ? folder + "/stdout.log" : "");
      EXPECT_EQ(logs[rank].err.file, rule.err[rank] == F ? folder + "/stderr.log" : "");
      EXPECT_EQ(logs[rank].error_file, folder + "/error.json");
      file = file || rule.out[rank] == F || rule.err[rank] == F;
    }
    EXPECT_EQ(wants_router(logs), file);
    EXPECT_EQ(wants_folder(options, 2), file);
  }
}

TEST(Logs, DevNullAsFolderMeansNoFilesAtAll) {
  LogOptions options{.dir = "/dev/null", .redirects = StdMap::parse("-r", "3"), .tee = StdMap::parse("-t", "3")};
  options.console_ranks = {0};
  const auto logs = plan_logs(options, make_run_folder(options.dir, "id"), 0, 2);
  EXPECT_EQ(logs[1].out.sink, Sink::inherited);
  EXPECT_EQ(logs[1].error_file, "");
  EXPECT_FALSE(wants_folder(options, 2));
}

TEST(Logs, OnlyTeedStreamsAreFiltered) {
  LogOptions options{.redirects = StdMap::parse("-r", "3"), .tee = StdMap::parse("-t", "0:1,1:3")};
  options.console_ranks = {0};
  options.stdout_filters = {"loss"};
  const auto logs = plan_logs(options, "/run", 0, 2);
  EXPECT_EQ(logs[0].out.filter_file, "/run/attempt_0/filtered_stdout.log");
  EXPECT_EQ(logs[0].err.filter_file, "");
  EXPECT_EQ(logs[1].out.filter_file, "");  // not on the console
}

TEST(Logs, Prefixes) {
  LogOptions options{.role = "trainer"};
  EXPECT_EQ(plan_logs(options, "", 0, 2)[1].prefix, "[trainer1]:");
  EXPECT_EQ(plan_logs(options, "", 0, 2, 8)[1].prefix, "[trainer9]:");
  options.prefix_template = "<${role_name} ${rank}/$local_rank> ";
  EXPECT_EQ(plan_logs(options, "", 0, 2, 8)[1].prefix, "<trainer 9/1> ");
  const std::pair<const char*, const char*> cases[] = {{"$$rank", "$rank"},  {"$other ${x}", "$other ${x}"},
                                                       {"${rank", "${rank"}, {"$", "$"},
                                                       {"$ranks", "$ranks"}, {"${rank}s$$", "3s$"}};
  for (const auto& [text, expanded] : cases) EXPECT_EQ(expand_prefix(text, "r", 3, 1), expanded) << text;
}

TEST(Logs, FoldersOfARun) {
  const ScratchFolder scratch;
  const std::string run = make_run_folder(scratch.file("a/b"), "job7");
  EXPECT_THAT(run, HasSubstr(scratch.file("a/b/job7_")));
  EXPECT_NE(run, make_run_folder(scratch.file("a/b/"), "job7"));
  const auto logs = plan_logs(LogOptions{.redirects = StdMap::parse("-r", "1")}, run, 0, 2);
  make_attempt_folders(logs);
  scratch.write("old", "");
  std::filesystem::copy(scratch.file("old"), logs[1].out.file);
  make_attempt_folders(logs);
  EXPECT_TRUE(std::filesystem::is_directory(logs[1].folder));
  EXPECT_FALSE(std::filesystem::exists(logs[1].out.file));
}

TEST(Logs, ATemporaryFolderIsPrivate) {
  const ScratchFolder scratch;
  const char* before = std::getenv("TMPDIR");
  const std::string saved = before != nullptr ? before : "";
  setenv("TMPDIR", scratch.path().c_str(), 1);
  const std::string run = make_run_folder("", "id");
  before != nullptr ? setenv("TMPDIR", saved.c_str(), 1) : unsetenv("TMPDIR");
  EXPECT_THAT(run, HasSubstr(scratch.path() + "/lockstep_"));
  struct stat status {};
  ASSERT_EQ(stat(std::filesystem::path(run).parent_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
}

TEST(Logs, AFolderThatCannotBeIsRefused) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("file", "");
  EXPECT_THAT(usage_error([&] { make_run_folder(file, "id"); }), HasSubstr("'" + file + "': Not a directory"));
  EXPECT_THAT(usage_error([&] { make_run_folder(file + "/x", "id"); }), HasSubstr("Not a directory"));
  EXPECT_THAT(usage_error([] { make_run_folder("/proc/nothing", "id"); }), HasSubstr("/proc/nothing"));
  EXPECT_THAT(usage_error([] { make_run_folder("/proc", "id"); }), HasSubstr("/proc/id_"));  // not writable
  EXPECT_THAT(usage_error([&] { make_run_folder(scratch.path(), "a/b"); }), HasSubstr("'a/b'"));
}

}  // namespace
}  // namespace lockstep::launch
