#include "lockstep/data/readers/table_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::usage_error;

std::unique_ptr<ByteSource> source_of(const std::string& text) {
  return memory_bytes({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, "a.csv");
}

TableLayout layout_of(const std::string& text, const TableFormat& format = {}) {
  return lay_out_table(*source_of(text), format);
}

// All rows, as doubles.
std::vector<double> numbers_of(const std::string& text, const TableFormat& format = {}) {
  const std::unique_ptr<ByteSource> source = source_of(text);
  const TableLayout layout = lay_out_table(*source, format);
  std::vector<double> numbers(std::size_t(layout.rows * layout.columns));
  parse_rows(*source, format, layout, {0, layout.rows},
             {.type = &NumberType::float64, .data = reinterpret_cast<char*>(numbers.data())});
  return numbers;
}

std::string error_of(const std::string& text, const TableFormat& format = {}) {
  return usage_error([&] { numbers_of(text, format); });
}

TEST(RowsOf, DividesAsTensorSplitDoes) {
  for (const std::int64_t rows : {0, 1, 5, 7, 8, 100}) {
    for (const int world : {1, 2, 3, 8}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const RowRange range = rows_of({rank, world, Remainder::keep}, rows);
        EXPECT_EQ(range.first, next);
        EXPECT_EQ(range.size(), rows / world + (rank < rows % world ? 1 : 0));
        next = range.last;
      }
      EXPECT_EQ(next, rows);
    }
  }
  EXPECT_EQ(usage_error([] { rows_of({2, 2}, 5); }), "rank 2 of 2 asked for a slice of a table");
  usage_error([] { rows_of({-1, 2}, 5); });
}

TEST(RowsOf, EqualSlicesCoverEveryRowOrLeaveTheLastOnesOut) {
  for (const std::int64_t rows : {1, 5, 7, 8, 100}) {
    for (const int world : {1, 2, 3, 8}) {
      std::int64_t covered = 0;
      for (int rank = 0; rank < world; ++rank) {
        const RowRange range = rows_of({rank, world}, rows);
        EXPECT_EQ(range.size(), (rows + world - 1) / world);
        EXPECT_LE(range.first, covered) << "no gap";
        EXPECT_LE(range.last, rows);
        covered = range.last;
        const RowRange dropping = rows_of({rank, world, Remainder::drop}, rows);
        EXPECT_EQ(dropping.size(), rows / world);
        EXPECT_EQ(dropping.first, rank * (rows / world));
      }
      EXPECT_EQ(covered, rows);
    }
  }
}

TEST(LayOutTable, KnowsAHeaderByItsFields) {
  EXPECT_THAT(layout_of("a,b\n1,2\n").names, ElementsAre("a", "b"));
  EXPECT_THAT(layout_of("1,2\n3,4\n").names, IsEmpty());
  EXPECT_THAT(layout_of("1,b\n3,4\n").names, IsEmpty());
  EXPECT_THAT(layout_of("1,1e999\n3,4\n").names, IsEmpty());
  EXPECT_THAT(layout_of("2019,2020\n3,4\n", {.header = TableHeader::present}).names, ElementsAre("2019", "2020"));
  EXPECT_THAT(layout_of("a,b\n3,4\n", {.header = TableHeader::absent}).names, IsEmpty());
  EXPECT_THAT(layout_of(",a, \n1,2,3\n").names, ElementsAre("", "a", " "));
}

TEST(LayOutTable, ALineOfEmptyFieldsIsNoHeader) {
  for (const char* empty : {",,", "\"\",,", " ,\t,"}) {
    const std::string text = std::string(empty) + "\n1,2,3\n";
    EXPECT_EQ(layout_of(text).rows, 2) << empty;
    EXPECT_EQ(error_of(text),
              "a.csv:1: column 1 is empty, a number expected; if the line holds names, say that the header is present");
    EXPECT_THAT(numbers_of(text, {.header = TableHeader::present}), ElementsAre(1, 2, 3));
  }
}

TEST(LayOutTable, CountsRowsAndMarksEveryThousandth) {
  std::string text = "x\n";
  for (int row = 0; row < 5000; ++row) text += std::to_string(row) + "\n\n";
  const TableLayout layout = layout_of(text);
  EXPECT_EQ(layout.rows, 5000);
  EXPECT_EQ(layout.columns, 1);
  EXPECT_EQ(layout.end, text.size());
  ASSERT_EQ(layout.marks.size(), 5u);
  EXPECT_EQ(layout.marks[1].line, 2u + 2 * 1024);
  EXPECT_EQ(text.substr(layout.marks[4].offset, 5), "4096\n");
}

TEST(LayOutTable, RefusesWhatIsNoTable) {
  EXPECT_EQ(error_of(""), "'a.csv': no rows in it");
  EXPECT_EQ(error_of("\r\n\n"), "'a.csv': no rows in it");
  EXPECT_EQ(error_of("a,b\n"), "'a.csv': no rows in it, only the header");
  for (const char delimiter : {'"', '\n', '.', '-', '7', 'e'}) {
    EXPECT_EQ(error_of("1", {.delimiter = delimiter}),
              "delimiter '" + shown({&delimiter, 1}) + "': one that no number is written with is needed");
  }
}

TEST(ColumnOf, FindsByNameAndByNumber) {
  const TableLayout named = layout_of("width,height,width,5\n1,2,3,4\n", {.header = TableHeader::present}),
                    plain = layout_of("1,2,3\n");
  const auto find = [](const TableColumn& column, const TableLayout& layout) { return column_of(column, layout, "f"); };
  EXPECT_EQ(find("height", named), 1);
  EXPECT_EQ(find("5", named), 3);
  EXPECT_EQ(find(1, named), 0);
  EXPECT_EQ(find(-1, plain), 2);
  EXPECT_EQ(find(-3, plain), 0);
  EXPECT_EQ(usage_error([&] { find("height", plain); }), "'f': column 'height' asked for, but no header");
  EXPECT_EQ(usage_error([&] { find("width", named); }), "'f': two columns are called 'width'; say which by its number");
  EXPECT_EQ(usage_error([&] { find("hieght", named); }),
            "'f': unknown column 'hieght': did you mean 'height'? (one of width, height, width, 5)");
  for (const std::int64_t number : {0, 4, -4}) {
    EXPECT_EQ(usage_error([&] { find(number, plain); }),
              "'f': column " + std::to_string(number) + " asked for, 1 ... 3 (or -1, the last, ...) are there");
  }
}

TEST(ParseRows, ReadsNumbersWhateverTheirClothes) {
  EXPECT_THAT(numbers_of("1,2\r\n\"3\", 4 \n\n+5,6e0"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(numbers_of("a\tb\n1\t2\n", {.delimiter = '\t'}), ElementsAre(1, 2));
  EXPECT_THAT(numbers_of("1 2\n", {.delimiter = ' '}), ElementsAre(1, 2));
}

TEST(ParseRows, PutsTheLabelApart) {
  const std::string text = "1,7,2\n3,8,4\n";
  const std::unique_ptr<ByteSource> source = source_of(text);
  const TableLayout layout = lay_out_table(*source, {});
  std::vector<float> data(4);
  std::vector<std::int64_t> labels(2);
  parse_rows(*source, {}, layout, {0, 2},
             {.type = &NumberType::float32,
              .label_type = &NumberType::int64,
              .labels = {1},
              .data = reinterpret_cast<char*>(data.data()),
              .target = reinterpret_cast<char*>(labels.data())});
  EXPECT_THAT(data, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(labels, ElementsAre(7, 8));
}

TEST(ParseRows, NamesLineAndColumnOfEachFault) {
  EXPECT_EQ(error_of("1,2\n\n3,abc\n"), "a.csv:3: column 2 'abc' is not a number");
  EXPECT_EQ(error_of("w,h\n1,2\n\"3\",4\n5,\"6\n7\"\n"), "a.csv:4: column 2 (h) '6\\n7' is not a number");
  EXPECT_EQ(error_of("w,h\n1,2\n3,\n"), "a.csv:3: column 2 (h) is empty, a number expected");
  EXPECT_EQ(error_of("w,h\n1,2\n3,1e999\n"), "a.csv:3: column 2 (h) '1e999' does not fit float64");
  EXPECT_EQ(error_of("w,h\n1,2\n3\n"), "a.csv:3: 1 column, 2 expected");
  EXPECT_EQ(error_of("1,2\n3,4,5\n"), "a.csv:2: 3 columns, 2 expected");
}

TEST(ParseRows, GuessesWhatWasMeant) {
  EXPECT_EQ(error_of("1,b\n3,4\n"),
            "a.csv:1: column 2 'b' is not a number; if the line holds names, say that the header is present");
  EXPECT_EQ(error_of("1;2\n3;4\n", {.header = TableHeader::absent}),
            "a.csv:1: column 1 '1;2' is not a number; is ',' the delimiter?");
}

TEST(ParseRows, NoticesThatTheFileChanged) {
  const std::string three = "1\n2\n3\n", two = "1\n2\n";
  const std::unique_ptr<ByteSource> longer = source_of(three), shorter = source_of(two);
  const TableLayout layout = lay_out_table(*longer, {});
  EXPECT_EQ(usage_error([&] {
              parse_rows(*shorter, {}, layout, {0, 3}, {.type = &NumberType::float32});
            }),
            "a.csv:3: the file became shorter while it was read");
}

}  // namespace
}  // namespace lockstep::data
