#include "lockstep/flags/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/flags/values.h"

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

TEST(Parse, TextsThatAreAskedFor) {
  EXPECT_THAT(read({"-n", "x", "--help", "--nonsense"}).parsed.text, HasSubstr("usage: program"));
  EXPECT_THAT(read({"-h"}).parsed.text, HasSubstr("--repeat-count"));
  EXPECT_EQ(read({"--version"}, [](Table& table) { table.version = "program 1\n"; }).parsed.text, "program 1\n");
  EXPECT_THAT(refusal_of({"--version"}), HasSubstr("unknown option '--version'"));
  EXPECT_EQ(refusal_of({"--help=all"}), "--help takes no value, found 'all'");
}

TEST(Parse, HelpIsGivenWhateverIsWrong) {
  for (const Words& words : std::vector<Words>{{"--nonsense", "-h"}, {"--rate", "--help"}, {"--fast=1", "-x", "-h"}})
    EXPECT_THAT(read(words).parsed.text, HasSubstr("usage: program")) << words.front();
  EXPECT_THAT(refusal_of({"--nonsense", "program", "--help"}, kProgramFollows), HasSubstr("'--nonsense'"))
      << "the program's help";
  EXPECT_EQ(refusal_of({"--fast=1", "--nonsense", "-n"}), "--fast takes no value, found '1'") << "the first is told";
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
  EXPECT_EQ(refusal_of({"--no-eval=maybe"}), "--no-eval takes no value, found 'maybe'");
  EXPECT_EQ(refusal_of({"-fast"}), "--fast takes no value, found 'ast'");
}

TEST(Parse, AFlagTwice) {
  EXPECT_EQ(refusal_of({"-n", "1", "--repeat-count", "2"}), "--repeat-count is given 2 times");
  EXPECT_EQ(refusal_of({"-f", "-f"}), "--fast is given 2 times");
  const Outcome last = read({"-n", "1", "--repeat-count", "2"}, [](Table& table) { table.repeats = true; });
  EXPECT_EQ(last.settings.count, 2);
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
