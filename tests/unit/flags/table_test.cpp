#include "lockstep/flags/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/flags/values.h"
#include "tests/support/usage_error.h"

namespace lockstep::flags {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Wishes {
  std::string model = "mlp";
  std::optional<int> batch_size;
  double lr = 0.1;
  bool eval = true;
  std::string output_dir;
};

Table table_of(Wishes& wishes) {
  return {.usage = "program [options]",
          .about = "Does something.\n",
          .groups = {{"", {{"--lr", real(wishes.lr, kNotNegative), "Learning rate"}}},
                     {"Job",
                      {{"--model", one_of(wishes.model, {"mlp", "convnet"}), "what is trained"},
                       {"-b, --batch-size", integer(wishes.batch_size, 1, 9), "Samples", "100"},
                       {"--no-eval", off(wishes.eval), "Do not evaluate"},
                       unrecorded({"--output-dir", text(wishes.output_dir, "DIR"), "Write here"})}}},
          .after = "That is all.\n",
          .version = "program 1\n"};
}

TEST(Table, HelpIsMadeOfTheRows) {
  Wishes wishes;
  EXPECT_EQ(help(table_of(wishes)),
            "usage: program [options]\n"
            "\n"
            "Does something.\n"
            "\n"
            "Options:\n"
            "  -h, --help                      Print this help and exit\n"
            "  --version                       Print the version and exit\n"
            "  --lr X                          Learning rate [0.1]\n"
            "\n"
            "Job:\n"
            "  --model NAME                    mlp|convnet: what is trained [mlp]\n"
            "  -b, --batch-size N              Samples [100]\n"
            "  --no-eval                       Do not evaluate\n"
            "  --output-dir DIR                Write here\n"
            "\n"
            "That is all.\n");
}

TEST(Table, HelpOfLongNamesAndOfRowsWithoutText) {
  std::string place;
  const Table table{.usage = "u",
                    .groups = {{"",
                                {{"--a-name-that-is-longer-than-the-column", text(place, "DIR"), "Text"},
                                 {"--kind", one_of(place, {"a", "b"}), "", "what fits"}}}}};
  EXPECT_EQ(help(table),
            "usage: u\n"
            "\n"
            "Options:\n"
            "  -h, --help                      Print this help and exit\n"
            "  --a-name-that-is-longer-than-the-column DIR  Text\n"
            "  --kind NAME                     a|b [what fits]\n");
}

TEST(Table, HelpOfAGroup) {
  Wishes wishes;
  Table table = table_of(wishes);
  table.groups.front().title = "Learning rate";
  EXPECT_THAT(help(table), HasSubstr("\n--help GROUP shows one of them: learning-rate, job\n"));
  EXPECT_EQ(help(table, "learning"), "Learning rate:\n  --lr X                          Learning rate [0.1]\n");
  EXPECT_EQ(help(table, "learning"), help(table, "learning-rate"));
  EXPECT_EQ(testing::usage_error([&] { help(table, "jobs"); }),
            "--help 'jobs': no group of flags; there are learning-rate, job");
  EXPECT_THAT(testing::usage_error([&] { help(table, ""); }), HasSubstr("no group"));
  table.groups.back().title = "Learning";
  EXPECT_THAT(testing::usage_error([&] { help(table, "l"); }), HasSubstr("several groups"));
  EXPECT_THAT(help(table, "learning"), HasSubstr("--model")) << "the whole name of one";
}

TEST(Table, NamesOfAllFlags) {
  Wishes wishes;
  EXPECT_THAT(names_of(table_of(wishes)), ElementsAre("--lr", "--model", "-b", "--batch-size", "--no-eval",
                                                      "--output-dir", "-h", "--help", "--version"));
}

TEST(Table, RecordHasTheValuesThatHold) {
  Wishes wishes;
  EXPECT_EQ(json(table_of(wishes)),
            "{\n"
            "  \"lr\": 0.1,\n"
            "  \"model\": \"mlp\",\n"
            "  \"batch_size\": null,\n"
            "  \"eval\": true\n"
            "}\n");
  const Table table = table_of(wishes);
  wishes = {.model = "convnet", .batch_size = 3, .lr = 1, .eval = false, .output_dir = "x"};
  EXPECT_EQ(nlohmann::json::parse(json(table)),
            nlohmann::json({{"lr", 1.0}, {"model", "convnet"}, {"batch_size", 3}, {"eval", false}}));
}

}  // namespace
}  // namespace lockstep::flags
