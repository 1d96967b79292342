#include "lockstep/data/readers/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/gzip.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using testing::gzip;
using testing::ScratchFolder;
using testing::usage_error;

const char* const kFlowers = "width,height,species\n1.5,2,0\n0.1,4,2\n5,6,1\n";

TEST(ReadTable, GivesFeaturesAndLabels) {
  const ScratchFolder folder;
  const std::string path = folder.write("a.csv", kFlowers);
  const Table table = read_table(path, {.label = "species"});
  EXPECT_TRUE(at::equal(table.data, torch::tensor({{1.5f, 2.0f}, {0.1f, 4.0f}, {5.0f, 6.0f}})));
  EXPECT_TRUE(at::equal(table.target, torch::tensor({0, 2, 1})));
  EXPECT_THAT(table.columns, ElementsAre("width", "height"));
  EXPECT_EQ(table.total_rows, 3);
  EXPECT_TRUE(at::equal(read_table(folder.write("a.csv.gz", gzip(kFlowers))).data, read_table(path).data));
}

TEST(ReadTable, HasTheDtypesAskedFor) {
  const ScratchFolder folder;
  const std::string path = folder.write("a.csv", "1,2\n3,0.5\n");
  const Table table = read_table(path, {.dtype = at::kLong, .label = std::int64_t(-1), .label_dtype = at::kDouble});
  EXPECT_TRUE(at::equal(table.data, torch::tensor({{1}, {3}})));
  EXPECT_TRUE(at::equal(table.target, torch::tensor({2.0, 0.5}, at::kDouble)));
  EXPECT_FALSE(read_table(path).target.defined());
  EXPECT_EQ(read_table(path, {.dtype = at::kDouble}).data.scalar_type(), at::kDouble);
  EXPECT_EQ(usage_error([&] { read_table(path, {.dtype = at::kHalf}); }),
            "a table of Half asked for: Float, Double or Long");
  EXPECT_EQ(usage_error([&] { read_table(path, {.dtype = at::kLong}); }),
            path + ":2: column 2 '0.5' is not a whole number");
}

// Lines of different lengths, blank ones and line ends in quotes: slices are cut by rows.
TEST(ReadTable, TheSlicesOfAllRanksAreTheTable) {
  const ScratchFolder folder;
  std::string text = "x,y\n";
  for (int row = 0; row < 4099; ++row) {
    text += std::to_string(row) + (row % 7 == 0 ? ",\"\n\n0.25 \"\r\n\n" : ",1e-3\n");
  }
  for (const std::string& path : {folder.write("a.csv", text), folder.write("a.csv.gz", gzip(text))}) {
    const Table whole = read_table(path);
    ASSERT_EQ(whole.data.size(0), 4099);
    for (const int world : {2, 3, 5}) {
      std::vector<at::Tensor> slices;
      for (int rank = 0; rank < world; ++rank) {
        const Table part = read_table(path, {}, {rank, world, Remainder::keep});
        EXPECT_EQ(part.rows.size(), part.data.size(0));
        EXPECT_EQ(part.total_rows, 4099);
        slices.push_back(part.data);
      }
      EXPECT_TRUE(at::equal(at::cat(slices), whole.data)) << world;
      EXPECT_TRUE(at::equal(slices[1], at::tensor_split(whole.data, world)[1]));
    }
  }
}

TEST(ReadTable, MoreRanksThanRows) {
  const ScratchFolder folder;
  const Table table = read_table(folder.write("a.csv", "1,2,3\n"), {.label = std::int64_t(1)}, {3, 4, Remainder::keep});
  EXPECT_EQ(table.data.sizes(), (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(table.target.sizes(), (std::vector<std::int64_t>{0}));
}

TEST(ReadTable, RanksThatTrainTogetherGetEquallyManyRows) {
  const ScratchFolder folder;
  const std::string path = folder.write("a.csv", "0\n1\n2\n3\n4\n5\n6\n");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(read_table(path, {}, {rank, 3}).data.size(0), 3) << rank;
  EXPECT_TRUE(at::equal(read_table(path, {}, {1, 3}).data, torch::tensor({{2.0f}, {3.0f}, {4.0f}})));
  EXPECT_EQ(read_table(path, {}, {2, 3, Remainder::drop}).rows.last, 6);
}

TEST(ReadTable, ReadsTheColumnsAskedForAndSeveralLabels) {
  const ScratchFolder folder;
  const std::string path = folder.write("a.csv", "name,x,y,z,remark\nanna,1,2,3,\nbert,4,5,6,late\n");
  const TableOptions options{.format = {.header = TableHeader::present},
                             .columns = {"z", std::int64_t(2)},
                             .labels = {"y", std::int64_t(4)},
                             .label_dtype = at::kFloat};
  EXPECT_EQ(usage_error([&] { read_table(path, options); }), "'" + path + "': column 4 asked for twice");
  TableOptions right = options;
  right.columns = {std::int64_t(2)};
  const Table table = read_table(path, right);
  EXPECT_THAT(table.columns, ElementsAre("x"));
  EXPECT_TRUE(at::equal(table.data, torch::tensor({{1.0f}, {4.0f}})));
  EXPECT_TRUE(at::equal(table.target, torch::tensor({{2.0f, 3.0f}, {5.0f, 6.0f}}))) << "in the order asked for";
  right.label = "x";
  EXPECT_EQ(usage_error([&] { read_table(path, right); }),
            "a table with .label, one column, or .labels, several: both were given");
}

TEST(ReadTable, AnErrorNamesTheLineOfTheFileOnEveryRank) {
  const ScratchFolder folder;
  std::string text = "x\n";
  for (int row = 0; row < 3000; ++row) text += row == 2500 ? "\nabc\n" : "1\n";
  const std::string path = folder.write("a.csv", text);
  EXPECT_EQ(read_table(path, {}, {0, 2}).data.size(0), 1500);
  EXPECT_EQ(usage_error([&] { read_table(path, {}, {1, 2}); }), path + ":2503: column 1 (x) 'abc' is not a number");
}

TEST(ReadTable, ManyColumnsInTheFirstRowTakeNoMemory) {
  const ScratchFolder folder;
  std::string text = "x" + std::string(3000000, ',');
  text += "\n";
  for (int row = 0; row < 1000000; ++row) text += "1\n";
  const std::string path = folder.write("a.csv", text);
  EXPECT_EQ(usage_error([&] { read_table(path); }), path + ":2: 1 column, 3000001 expected");
  EXPECT_EQ(usage_error([&] { read_table(path, {}, {1, 2}); }), path + ":500002: 1 column, 3000001 expected");
}

TEST(ReadTable, RefusesWhatIsNoTable) {
  const ScratchFolder folder;
  EXPECT_EQ(usage_error([&] { read_table(folder.file("no")); }),
            "cannot open '" + folder.file("no") + "': No such file or directory");
  EXPECT_EQ(usage_error([&] { read_table(folder.path()); }), "cannot read '" + folder.path() + "': not a regular file");
  const std::string path = folder.write("a.csv", "1\n2\n");
  EXPECT_EQ(usage_error([&] { read_table(path, {.label = std::int64_t(1)}); }),
            "'" + path + "': no column beside the label's");
}

}  // namespace
}  // namespace lockstep::data
