#include "lockstep/flags/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/flags/values.h"
#include "tests/support/usage_error.h"

namespace lockstep::flags {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

struct Settings {
  int count = 1;
  std::string output_dir;
  double rate = 0.5;
  bool fast = false;
  bool eval = true;
};

Table table_of(Settings& settings) {
  return {.usage = "program [options]",
          .groups = {{"",
                      {{"-n, --repeat-count", integer(settings.count, 0, 9), "How often"},
                       {"--output-dir", text(settings.output_dir, "DIR"), "Where to"},
                       {"--rate", real(settings.rate, kNotNegative), "How fast"},
                       {"-f, --fast", on(settings.fast), "In a hurry"},
                       {"--no-eval", off(settings.eval), "Do not look"}}}}};
}

struct Outcome {
  Settings settings;
  Parsed parsed;
};

// Reads the words by the table, to which `change` does what it likes.
template <class Change>
Outcome read(const Words& words, Change&& change, const Variables& variables = {}) {
  Outcome outcome;
  Table table = table_of(outcome.settings);
  change(table);
  outcome.parsed = parse(table, words, [&](const char* name) {
    const auto found = variables.find(name);
    return found != variables.end() ? found->second.c_str() : nullptr;
  });
  return outcome;
}

Outcome read(const Words& words) {
  return read(words, [](Table&) {});
}

template <class Change>
std::string refusal_of(const Words& words, Change&& change, const Variables& variables = {}) {
  try {
    read(words, change, variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal_of(const Words& words) {
  return refusal_of(words, [](Table&) {});
}

const auto kWithVariables = [](Table& table) { table.variables = "PET_"; };
const auto kProgramFollows = [](Table& table) { table.operands = Operands::program; };

TEST(Parse, EverySpelling) {
  for (const Words& spelling : std::vector<Words>{{"-n", "3"},
                                                  {"-n3"},
                                                  {"--repeat-count", "3"},
                                                  {"--repeat_count=3"},
                                                  {"--repeat-count=3"},
                                                  {"--repeat-count", "3"}})
    EXPECT_EQ(read(spelling).settings.count, 3) << spelling.front();
  EXPECT_EQ(read({"--output_dir", "a_b"}).settings.output_dir, "a_b") << "names only";
  EXPECT_EQ(read({"--output-dir=a_b=c"}).settings.output_dir, "a_b=c");
  EXPECT_EQ(read({"--output-dir=--x"}).settings.output_dir, "--x");
  const Settings settings = read({"-f", "--no_eval"}).settings;
  EXPECT_TRUE(settings.fast);
  EXPECT_FALSE(settings.eval);
}

TEST(Parse, NamesThatOtherProgramsHave) {
  const auto others = [](Table& table) { table.groups[0].flags[0].also = {"--times", "-r"}; };
  for (const Words& spelling : std::vector<Words>{{"--times", "3"}, {"--times=3"}, {"-r3"}, {"-n", "3"}}) {
    const Outcome outcome = read(spelling, others);
    EXPECT_EQ(outcome.settings.count, 3) << spelling.front();
    EXPECT_TRUE(outcome.parsed.given("--repeat-count"));
  }
  EXPECT_EQ(refusal_of({"--times", "x"}, others), refusal_of({"-n", "x"}, others)) << "by its own name";
  EXPECT_THAT(refusal_of({"--times", "3", "-n", "3"}, others), HasSubstr("--repeat-count is given 2 times"));
  Settings settings;
  Table table = table_of(settings);
  others(table);
  EXPECT_THAT(help(table), HasSubstr("How often (also --times, -r) [1]"));
}

TEST(Parse, NothingGivenNothingChanged) {
  const Outcome outcome = read({});
  EXPECT_EQ(outcome.settings.count, 1);
  EXPECT_TRUE(outcome.settings.eval);
  EXPECT_FALSE(outcome.parsed.given("--repeat-count"));
  EXPECT_THAT(outcome.parsed.operands, ElementsAre());
  EXPECT_EQ(outcome.parsed.text, "");
}

TEST(Parse, WhoGaveAValueIsKnown) {
  const Parsed parsed = read({"-n", "1"}, kWithVariables, {{"PET_RATE", "2"}}).parsed;
  EXPECT_TRUE(parsed.given("--repeat-count")) << "although it is the default";
  EXPECT_THAT(parsed.sources.at("--repeat-count"), ElementsAre(Source::command_line));
  EXPECT_THAT(parsed.sources.at("--rate"), ElementsAre(Source::environment));
  EXPECT_FALSE(parsed.given("--fast"));
  EXPECT_THROW((void)parsed.given("--no-such-flag"), std::out_of_range);
}

Outcome read_with_files(const Words& words, const std::vector<std::string>& texts, const Variables& variables = {}) {
  Outcome outcome;
  Table table = table_of(outcome.settings);
  table.variables = "PET_";
  std::vector<FlagFile> files;
  for (const std::string& text : texts) files.push_back(read_flag_file(text, "file " + std::to_string(files.size())));
  const auto get = [&](const char* name) {
    const auto found = variables.find(name);
    return found != variables.end() ? found->second.c_str() : nullptr;
  };
  outcome.parsed = parse(table, words, get, files);
  return outcome;
}

std::string refusal_of_files(const std::vector<std::string>& texts) {
  try {
    read_with_files({}, texts);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Parse, FilesStandBelowEnvironmentAndCommandLine) {
  const std::string below = R"({"repeat-count": 2, "rate": 1, "output_dir": "below", "fast": true})";
  const std::string above = R"({"rate": 3, "output_dir": "above", "eval": false})";
  const Outcome all = read_with_files({"--output-dir", "typed"}, {below, above}, {{"PET_RATE", "4"}});
  EXPECT_EQ(all.settings.count, 2);
  EXPECT_EQ(all.settings.output_dir, "typed");
  EXPECT_EQ(all.settings.rate, 4);
  EXPECT_TRUE(all.settings.fast);
  EXPECT_FALSE(all.settings.eval);
  EXPECT_THAT(all.parsed.sources.at("--output-dir"), ElementsAre(Source::command_line));
  EXPECT_THAT(all.parsed.sources.at("--rate"), ElementsAre(Source::environment));
  EXPECT_THAT(all.parsed.sources.at("--fast"), ElementsAre(Source::file));
  EXPECT_EQ(read_with_files({}, {below, above}).settings.output_dir, "above");
  const Outcome off = read_with_files({}, {below, above}, {{"PET_FAST", "0"}, {"PET_NO_EVAL", "0"}});
  EXPECT_FALSE(off.settings.fast) << "the environment switches off what a file switches on";
  EXPECT_TRUE(off.settings.eval);
}

TEST(Parse, ACommandLineSwitchesOffWhatStandsBelow) {
  const std::string file = R"({"fast": true, "eval": false})";
  const Outcome off = read_with_files({"--fast=0", "--no_eval=0"}, {file});
  EXPECT_FALSE(off.settings.fast);
  EXPECT_TRUE(off.settings.eval);
  EXPECT_FALSE(off.parsed.given("--fast")) << "as if nobody had said anything";
  EXPECT_FALSE(off.parsed.given("--no-eval"));
  const Variables variables{{"PET_FAST", "1"}, {"PET_NO_EVAL", "1"}};
  const Outcome both = read_with_files({"--fast=0"}, {file}, variables);
  EXPECT_FALSE(both.settings.fast) << "before the environment, too";
  EXPECT_FALSE(both.settings.eval);
  EXPECT_THAT(both.parsed.sources.at("--no-eval"), ElementsAre(Source::environment));
  const Outcome on = read_with_files({"--fast=1"}, {}, {{"PET_FAST", "0"}});
  EXPECT_TRUE(on.settings.fast);
  EXPECT_THAT(on.parsed.sources.at("--fast"), ElementsAre(Source::command_line));
}

TEST(Parse, TheRecordOfARunIsAFileThatSaysWhatWasAskedFor) {
  Settings settings;
  settings.rate = 2;
  const std::string record = json(table_of(settings));
  const Outcome again = read_with_files({}, {R"({"fast": true, "repeat_count": 3})", record});
  EXPECT_EQ(json(table_of(settings)), record);
  EXPECT_EQ(again.settings.rate, 2);
  EXPECT_EQ(again.settings.count, 1) << "as the record says, not as the file below it";
  EXPECT_FALSE(again.settings.fast);
  EXPECT_FALSE(again.parsed.given("--repeat-count")) << "nobody asked for the default";
  EXPECT_TRUE(again.parsed.given("--rate"));
}

TEST(Parse, WhatIsWrongInAFileIsNamed) {
  EXPECT_EQ(refusal_of_files({R"({"repeat_cuont": 3})"}),
            "file 0: there is no flag 'repeat_cuont': did you mean 'repeat_count'?");
  EXPECT_EQ(refusal_of_files({R"({"repeat_count": 30})"}),
            "file 0: repeat_count '30': out of range; wanted an integer from 0 to 9");
  EXPECT_EQ(refusal_of_files({"{}", R"({"rate": "x"})"}),
            "file 1: rate 'x': not a number; wanted " + std::string(kNotNegative.wanted));
  EXPECT_EQ(refusal_of_files({R"({"fast": 1})"}), "file 0: fast '1': a switch is true or false");
  EXPECT_EQ(refusal_of_files({R"({"rate": true})"}), "file 0: rate is true, must be X");
  EXPECT_THAT(refusal_of_files({R"({"rate": {}})"}), HasSubstr("file 0: rate is an object"));
  EXPECT_EQ(refusal_of_files({R"({"rate": 1, "rate": 2})"}), "file 0: 'rate' stands there twice");
  EXPECT_EQ(refusal_of_files({R"({"rate": })"}), "file 0 is no valid JSON at offset 9");
  EXPECT_EQ(refusal_of_files({"[1]"}), "file 0 is no JSON object: {\"batch_size\": 64}");
  EXPECT_THAT(refusal_of_files({std::string(100'000, '[')}), HasSubstr("nested too deep"));
  EXPECT_THAT(refusal_of_files({R"({"rate": 1e999})"}), HasSubstr("file 0 is no valid JSON"));
}

TEST(Parse, TextsThatAreAskedFor) {
  EXPECT_THAT(read({"-n", "x", "--help", "--nonsense"}).parsed.text, HasSubstr("usage: program"));
  EXPECT_THAT(read({"-h"}).parsed.text, HasSubstr("--repeat-count"));
  EXPECT_EQ(read({"--version"}, [](Table& table) { table.version = "program 1\n"; }).parsed.text, "program 1\n");
  EXPECT_THAT(refusal_of({"--version"}), HasSubstr("unknown option '--version'"));
  EXPECT_EQ(refusal_of({"--help=all"}), "--help takes no value, found 'all'");
}

TEST(Parse, HelpOfAGroupIsAskedForByItsName) {
  std::string kind = "a";
  bool fast = false;
  Table table{.usage = "program",
              .groups = {{"First", {{"--kind", or_alone("b", one_of(kind, {"a", "b"})), "What kind"}}},
                         {"Second one", {{"--fast", on(fast), "Soon"}}}}};
  for (const Words& words : std::vector<Words>{{"--help", "second-one"}, {"--help=second"}, {"--fast", "-h", "sec"}})
    EXPECT_EQ(parse(table, words).text, "Second one:\n  --fast                          Soon\n") << words.back();
  EXPECT_THAT(parse(table, {"--help", "--fast"}).text, HasSubstr("--kind [NAME]"));
  EXPECT_EQ(testing::usage_error([&] {
              parse(table, {"--help", "third"});
            }),
            "--help 'third': no group of flags; there are first, second-one");
  table.operands = Operands::program;
  EXPECT_THAT(parse(table, {"--help", "second"}).text, HasSubstr("--kind")) << "second may be a program";
}

TEST(Parse, AValueMayBeLeftOutWhereOneIsMeant) {
  std::string kind = "a";
  bool fast = false;
  const Table table{.usage = "program",
                    .groups = {{"", {{"--kind", or_alone("b", one_of(kind, {"a", "b", "c"}))}, {"--fast", on(fast)}}}}};
  for (const auto& [words, meant] : {std::pair(Words{"--kind"}, "b"), std::pair(Words{"--kind", "--fast"}, "b"),
                                     std::pair(Words{"--kind", "c"}, "c"), std::pair(Words{"--kind=a"}, "a")}) {
    parse(table, words);
    EXPECT_EQ(kind, meant) << words.back();
  }
  EXPECT_THAT(testing::usage_error([&] { parse(table, {"--kind", "d"}); }), HasSubstr("'d'"));
  const auto of_file = [&](const char* text) {
    kind = "a";
    parse(table, {}, {}, {read_flag_file(text, "file")});
    return kind;
  };
  EXPECT_EQ(of_file(R"({"kind": true})"), "b");
  EXPECT_EQ(of_file(R"({"kind": false})"), "a");
  EXPECT_EQ(of_file(R"({"kind": "c"})"), "c");
}

TEST(Parse, HelpIsGivenWhateverIsWrong) {
  for (const Words& words : std::vector<Words>{{"--nonsense", "-h"}, {"--rate", "--help"}, {"--fast=1", "-x", "-h"}})
    EXPECT_THAT(read(words).parsed.text, HasSubstr("usage: program")) << words.front();
  EXPECT_THAT(refusal_of({"--nonsense", "program", "--help"}, kProgramFollows), HasSubstr("'--nonsense'"))
      << "the program's help";
  EXPECT_EQ(refusal_of({"--version=1", "--nonsense", "-n"}, [](Table& table) { table.version = "program 1\n"; }),
            "--version takes no value, found '1'")
      << "the first is told";
}

TEST(Parse, UnknownFlagsNameTheNearest) {
  EXPECT_EQ(refusal_of({"--repeat_cuont=3"}),
            "unknown option '--repeat-cuont': did you mean '--repeat-count'? (one of -n, --repeat-count, --output-dir, "
            "--rate, -f, --fast, --no-eval, -h, --help)");
  EXPECT_THAT(refusal_of({"-zoo=1"}), HasSubstr("unknown option '-zoo'"));
  EXPECT_EQ(
      refusal_of({"--x"}, [](Table& table) { table.unknown = [](const auto& name, const auto&) { return name; }; }),
      "--x");
}

TEST(Parse, ValuesMissingAndTooMuch) {
  EXPECT_EQ(refusal_of({"--output-dir"}), "--output-dir needs a value (--output-dir DIR)");
  EXPECT_EQ(refusal_of({"-n"}), "--repeat-count needs a value (--repeat-count N)");
  EXPECT_EQ(refusal_of({"--output_dir", "--foo"}),
            "--output-dir needs a value, found '--foo'; one that begins with -- is written --output-dir=--foo");
  EXPECT_EQ(refusal_of({"--output-dir="}), "--output-dir needs a value, found none");
  EXPECT_EQ(refusal_of({"--rate", "-1"}), "--rate '-1': out of range; wanted a number of 0 or more");
  EXPECT_EQ(refusal_of({"--no-eval=maybe"}), "--no-eval takes no value but 0 or 1, found 'maybe'");
  EXPECT_EQ(refusal_of({"--fast="}), "--fast takes no value but 0 or 1, found ''");
  EXPECT_EQ(refusal_of({"-f0"}), "--fast takes no value, found '0'");
  EXPECT_EQ(refusal_of({"-fast"}), "--fast takes no value, found 'ast'");
}

TEST(Parse, AFlagTwice) {
  EXPECT_EQ(refusal_of({"-n", "1", "--repeat-count", "2"}), "--repeat-count is given 2 times");
  EXPECT_EQ(refusal_of({"-f", "-f"}), "--fast is given 2 times");
  EXPECT_EQ(refusal_of({"-f", "--fast=0"}), "--fast is given 2 times");
  const auto repeating = [](Table& table) { table.repeats = true; };
  const Outcome last = read({"-n", "1", "--repeat-count", "2"}, repeating);
  EXPECT_EQ(last.settings.count, 2);
  EXPECT_FALSE(read({"-f", "-n", "3", "--fast=0"}, repeating).settings.fast);
  EXPECT_TRUE(read({"--fast=0", "-f"}, repeating).settings.fast);
  EXPECT_EQ(read({"-f", "-n", "3", "--fast=0"}, repeating).settings.count, 3);
}

TEST(Parse, WordsThatBelongToNoFlag) {
  EXPECT_EQ(refusal_of({"x"}), "unexpected argument 'x': every value follows a flag");
  EXPECT_THAT(refusal_of({"--"}), HasSubstr("unknown option '--'")) << "nothing may follow it";
  const Outcome some = read({"a", "-f", "-", "--", "-n"}, [](Table& table) { table.operands = Operands::some; });
  EXPECT_THAT(some.parsed.operands, ElementsAre("a", "-", "-n"));
  EXPECT_TRUE(some.settings.fast);
}

TEST(Parse, AProgramAndItsOwnFlags) {
  for (const Words& words :
       std::vector<Words>{{"-f", "run", "-n", "x", "--", "--help"}, {"-f", "--", "run", "-n", "x", "--", "--help"}}) {
    const Outcome outcome = read(words, kProgramFollows);
    EXPECT_TRUE(outcome.settings.fast);
    EXPECT_EQ(outcome.settings.count, 1);
    EXPECT_THAT(outcome.parsed.operands, ElementsAre("run", "-n", "x", "--", "--help"));
  }
  EXPECT_THAT(read({""}, kProgramFollows).parsed.operands, ElementsAre(""));
}

TEST(Parse, TheEnvironmentAndThenTheCommandLine) {
  const Variables variables{{"PET_REPEAT_COUNT", "3"}, {"PET_OUTPUT_DIR", ""}, {"PET_FAST", "1"}, {"PET_NO_EVAL", "0"}};
  const Settings settings = read({}, kWithVariables, variables).settings;
  EXPECT_EQ(settings.count, 3);
  EXPECT_EQ(settings.output_dir, "") << "an empty variable says nothing";
  EXPECT_TRUE(settings.fast);
  EXPECT_TRUE(settings.eval);
  EXPECT_EQ(read({"-n", "4"}, kWithVariables, variables).settings.count, 4);
  EXPECT_EQ(read(
                {}, [](Table&) {}, variables)
                .settings.count,
            1)
      << "a table that asks for no variables";
}

TEST(Parse, AnEmptyVariableSaysNothing) {
  const Outcome outcome = read({}, kWithVariables, {{"PET_FAST", ""}, {"PET_NO_EVAL", ""}, {"PET_RATE", ""}});
  for (const auto& [name, sources] : outcome.parsed.sources) EXPECT_THAT(sources, ElementsAre()) << name;
  EXPECT_FALSE(outcome.settings.fast);
}

TEST(Parse, WithoutAnEnvironmentNoVariableIsSet) {
  Settings settings;
  Table table = table_of(settings);
  kWithVariables(table);
  EXPECT_FALSE(parse(table, {"-f"}).given("--rate"));
  EXPECT_TRUE(settings.fast);
}

TEST(Parse, AWrongVariableIsNamedUnlessTheCommandLineSpeaks) {
  EXPECT_EQ(refusal_of({}, kWithVariables, {{"PET_REPEAT_COUNT", "many"}}),
            "PET_REPEAT_COUNT 'many': not an integer; wanted an integer from 0 to 9");
  EXPECT_EQ(refusal_of({}, kWithVariables, {{"PET_FAST", "yes"}}), "PET_FAST 'yes': a switch is 0 or 1");
  EXPECT_EQ(refusal_of({"-n", "4"}, kWithVariables, {{"PET_REPEAT_COUNT", "many"}}), "accepted");
}

TEST(Parse, MessagesBeginWithTheTablesPrefix) {
  const auto prefixed = [](Table& table) { table.prefix = "run: "; };
  EXPECT_EQ(refusal_of({"-n", "x"}, prefixed),
            "run: --repeat-count 'x': not an integer; wanted an integer from 0 to 9");
  EXPECT_THAT(refusal_of({"--x"}, prefixed), ::testing::StartsWith("run: unknown option"));
  EXPECT_EQ(refusal_of({"x"}, prefixed), "run: unexpected argument 'x': every value follows a flag");
}

}  // namespace
}  // namespace lockstep::flags
