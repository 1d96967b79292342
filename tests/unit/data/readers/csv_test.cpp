#include "lockstep/data/readers/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using testing::usage_error;

using Fields = std::vector<std::string>;

std::unique_ptr<ByteSource> source_of(const std::string& text) {
  return memory_bytes({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, "a.csv");
}

std::vector<Fields> records_of(const std::string& text, char delimiter = ',') {
  const std::unique_ptr<ByteSource> source = source_of(text);
  CsvRecords records(*source, delimiter);
  std::vector<Fields> all;
  while (records.next()) all.emplace_back(records.fields().begin(), records.fields().end());
  return all;
}

std::string error_of(const std::string& text) {
  return usage_error([&] { records_of(text); });
}

TEST(CsvRecords, SplitsRecordsAndFields) {
  EXPECT_THAT(records_of("a,b\n1,2\n"), ElementsAre(Fields{"a", "b"}, Fields{"1", "2"}));
  EXPECT_THAT(records_of("a;b,c\n;\n", ';'), ElementsAre(Fields{"a", "b,c"}, Fields{"", ""}));
  EXPECT_THAT(records_of(",\n x ,\n"), ElementsAre(Fields{"", ""}, Fields{" x ", ""}));
}

TEST(CsvRecords, LinesMayEndAsTheyLike) {
  const auto two = ElementsAre(Fields{"1", "2"}, Fields{"3", "4"});
  EXPECT_THAT(records_of("1,2\r\n3,4\r\n"), two);
  EXPECT_THAT(records_of("1,2\n3,4"), two);
  EXPECT_THAT(records_of("1,2\r\n3,4\r"), two);
  EXPECT_THAT(records_of("\n\n1,2\n\r\n\n3,4\n\n\r"), two);
  EXPECT_THAT(records_of("\xef\xbb\xbf\n1,2\n3,4"), two);
  EXPECT_THAT(records_of(""), ElementsAre());
  EXPECT_THAT(records_of("\n\r\n"), ElementsAre());
  EXPECT_THAT(records_of("\xef\xbb\xbf"), ElementsAre());
  EXPECT_THAT(records_of("\xef\xbb"), ElementsAre(Fields{"\xef\xbb"}));
}

TEST(CsvRecords, QuotedFieldsHoldAnything) {
  EXPECT_THAT(records_of("\"a,b\",\"say \"\"x\"\"\",\"\"\n\"two\nlines\",\"\",3\n"),
              ElementsAre(Fields{"a,b", "say \"x\"", ""}, Fields{"two\nlines", "", "3"}));
  EXPECT_THAT(records_of("\"1\"\r\n\"2\""), ElementsAre(Fields{"1"}, Fields{"2"}));
  EXPECT_THAT(records_of("\"\"\"\""), ElementsAre(Fields{"\""}));
  EXPECT_THAT(records_of("1,\"\n\r\n\"\n\n\n2,3"), ElementsAre(Fields{"1", "\n\r\n"}, Fields{"2", "3"}));
}

TEST(CsvRecords, NamesTheLineOfMisplacedQuotes) {
  EXPECT_EQ(error_of("1\n2\"3\n"), "a.csv:2: a quote inside of a field that does not begin with one");
  EXPECT_EQ(error_of("1\n\n \"3\"\n"), "a.csv:3: a quote inside of a field that does not begin with one");
  EXPECT_EQ(error_of("1\r\n\"2\"x,3\n"), "a.csv:2: 'x' after the closing quote of a field");
  EXPECT_EQ(error_of("\"2\"\r3"), "a.csv:1: '\\r' after the closing quote of a field");
  EXPECT_EQ(error_of("\"a\nb\"\n1,\"2\n3\n"), "a.csv:3: a quoted field begins in this record and never ends");
  EXPECT_EQ(error_of("\""), "a.csv:1: a quoted field begins in this record and never ends");
}

TEST(CsvRecords, PlacesLeadBackToTheirRecords) {
  const std::string text =
      "\xef\xbb\xbf"
      "a\n\n\"two\nlines\"\r\nc,d\n\ne";
  const std::unique_ptr<ByteSource> source = source_of(text);
  CsvRecords records(*source, ',');
  std::vector<std::uint64_t> lines;
  std::vector<std::pair<CsvPlace, std::string>> places;
  while (records.next()) {
    lines.push_back(records.place().line);
    places.emplace_back(records.place(), records.fields()[0]);
  }
  EXPECT_THAT(lines, ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(records.place().offset, text.size());
  for (const auto& [place, field] : places) {
    CsvRecords from_there(*source, ',', place);
    ASSERT_TRUE(from_there.next());
    EXPECT_EQ(from_there.fields()[0], field);
    EXPECT_EQ(from_there.place().line, place.line);
  }
}

// Records, quotes and escapes across the borders of what is read at a time, and one that is longer than that.
TEST(CsvRecords, BordersOfChunksDoNotShow) {
  std::string text;
  std::vector<Fields> expected;
  for (int i = 0; i < 60000; ++i) {
    const std::string number = std::to_string(i);
    text += i % 3 == 0 ? "\"" + number + "\"\"\n\",x\r\n" : number + ",x\n";
    expected.push_back({i % 3 == 0 ? number + "\"\n" : number, "x"});
  }
  const std::string filling(700000, 'y');
  text += "\"" + filling + "\"," + filling;
  expected.push_back({filling, filling});
  EXPECT_TRUE(records_of(text) == expected);
  EXPECT_TRUE(records_of("1," + text) != expected);
}

TEST(CsvRecords, AnEndlessRecordIsRefused) {
  EXPECT_EQ(error_of("1\n" + std::string((64 << 20) + 300000, 'x')),
            "a.csv:2: a record of more than 64 MiB: is this a table?");
}

// Each takes many times the one byte that it needs in the file.
TEST(CsvRecords, EndlessFieldsAreRefused) {
  const auto count = [](std::size_t delimiters) {
    const std::string text(delimiters, ',');
    const auto source = memory_bytes({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, "a.csv");
    CsvRecords records(*source, ',');
    records.next();
    return records.fields().size();
  };
  EXPECT_EQ(count((1 << 22) - 1), std::size_t(1) << 22);
  EXPECT_EQ(testing::usage_error([&] { count(1 << 22); }), "a.csv:1: more than 4194304 fields: is this a table?");
}

TEST(Shown, IsOnePrintableLine) {
  EXPECT_EQ(shown("a b"), "a b");
  EXPECT_EQ(shown("\n\xc3\xa4\x7f"), "\\n\xc3\xa4\\x7f");
  EXPECT_EQ(shown(std::string(41, 'x')), std::string(40, 'x') + "...");
}

}  // namespace
}  // namespace lockstep::data
