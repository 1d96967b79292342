#include "lockstep/data/readers/byte_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gzip.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::gzip;
using ::testing::HasSubstr;
using testing::ScratchFolder;
using testing::usage_error;

std::string rest_of(ByteSource& source) {
  std::string bytes(1 << 20, '\0');
  bytes.resize(source.read(bytes.data(), bytes.size()));
  return bytes;
}

TEST(ByteSource, EachKindReadsAndSeeks) {
  const ScratchFolder folder;
  std::string content;
  for (int i = 0; i < 100000; ++i) content += char(i * 7 + i / 251);
  const std::string packed = gzip(content);
  const std::vector<std::uint8_t> bytes(content.begin(), content.end());
  std::vector<std::unique_ptr<ByteSource>> sources;
  sources.push_back(open_bytes(folder.write("plain", content)));
  sources.push_back(open_bytes(folder.write("packed.gz", packed)));
  sources.push_back(memory_bytes(bytes, "memory"));
  for (const std::unique_ptr<ByteSource>& source : sources) {
    SCOPED_TRACE(source->path());
    char first[3];
    ASSERT_EQ(source->read(first, 3), 3u);
    EXPECT_EQ(std::string(first, 3), content.substr(0, 3));
    for (const std::size_t offset : {std::size_t(99990), std::size_t(0), std::size_t(70001), content.size()}) {
      source->seek(offset);
      EXPECT_TRUE(rest_of(*source) == content.substr(offset)) << offset;
    }
    EXPECT_GE(source->limit(), content.size());
  }
}

TEST(ByteSource, SeeksInTruncatedGzipOnlyAsFarAsItGoes) {
  const ScratchFolder folder;
  const std::string packed = gzip(std::string(1000, 'a') + "end");
  const std::unique_ptr<ByteSource> source = open_bytes(folder.write("a.gz", packed.substr(0, packed.size() / 2)));
  EXPECT_THAT(usage_error([&] { source->seek(1003); }), HasSubstr("gzip data ends early at offset"));
}

// As Python's gzip reads them: bgzip and `cat a.gz b.gz` make such files, tape drives the zeros.
TEST(ByteSource, ReadsGzipOfSeveralMembersAsOne) {
  const ScratchFolder folder;
  std::string content, packed;
  for (int member = 0; member < 300; ++member) {
    const std::string part(std::size_t(member * 37 % 1000), char('a' + member % 26));  // some are empty
    content += part;
    packed += gzip(part) + std::string(std::size_t(member % 3), '\0');
  }
  for (const std::size_t zeros : {0, 1, 70'000}) {
    const std::unique_ptr<ByteSource> source = open_bytes(folder.write("a.gz", packed + std::string(zeros, '\0')));
    EXPECT_TRUE(rest_of(*source) == content);
    for (const std::size_t offset : {content.size() - 5, std::size_t(0), std::size_t(12'345), content.size()}) {
      source->seek(offset);
      EXPECT_TRUE(rest_of(*source) == content.substr(offset)) << offset;
    }
  }
}

TEST(ByteSource, NamesTheOffsetOfDamageInALaterMember) {
  const ScratchFolder folder;
  const std::string first = gzip("first"), second = gzip("second");
  const auto error_of = [&](const std::string& bytes) {
    const std::string path = folder.write("a.gz", bytes);
    const std::string message = usage_error([&] { rest_of(*open_bytes(path)); });
    EXPECT_THAT(message, ::testing::StartsWith("'" + path + "': "));
    return message.substr(path.size() + 4);
  };
  const std::string whole = std::to_string(first.size() + 3);
  EXPECT_EQ(error_of(first + "xyz"),
            "trailing bytes after the gzip data at offset " + std::to_string(first.size()) + " of " + whole);
  EXPECT_EQ(error_of(first + std::string("\0\0x", 3)),
            "trailing bytes after the gzip data at offset " + std::to_string(first.size() + 2) + " of " + whole);
  EXPECT_THAT(error_of(first + "\x1fyz"), HasSubstr("damaged gzip data (incorrect header check) at offset "));
  EXPECT_EQ(error_of(first + second.substr(0, 12)), "gzip data ends early at offset " +
                                                        std::to_string(first.size() + 12) + " of " +
                                                        std::to_string(first.size() + 12));
}

TEST(ReadBytes, GivesTheFileAsItIs) {
  const ScratchFolder folder;
  for (const std::size_t length : {0, 1, 15, 16, 17, 1000}) {
    std::vector<std::uint8_t> content;
    for (std::size_t i = 0; i < length; ++i) content.push_back(std::uint8_t(i * 7));
    EXPECT_EQ(read_bytes(folder.write("a.gz", {content.begin(), content.end()}), length), content);
  }
}

TEST(ReadBytes, RefusesBeforeItReads) {
  const ScratchFolder folder;
  const std::string path = folder.write("a", std::string(1000, 'x'));
  EXPECT_EQ(usage_error([&] { read_bytes(path, 999); }), "'" + path + "': 1000 bytes, at most 999 are read");
  std::filesystem::resize_file(path, 1ull << 42);
  std::size_t seen = 0;
  const auto check = [&](std::span<const std::uint8_t> beginning) {
    seen = beginning.size();
    if (beginning[0] == 'x') throw UsageError("not this one");
  };
  EXPECT_EQ(usage_error([&] { read_bytes(path, 1ull << 50, check); }), "not this one");
  EXPECT_EQ(seen, 16u);
}

TEST(ByteSource, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  EXPECT_EQ(usage_error([&] { open_bytes(folder.file("no")); }),
            "cannot open '" + folder.file("no") + "': No such file or directory");
  EXPECT_EQ(usage_error([&] { open_bytes(folder.path()); }), "cannot read '" + folder.path() + "': not a regular file");
}

}  // namespace
}  // namespace lockstep::data
