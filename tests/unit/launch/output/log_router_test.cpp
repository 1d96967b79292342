#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <thread>

#include "tests/support/wait_until.h"
#include "tests/unit/launch/output/log_router_fixture.h"

namespace lockstep::launch {
namespace {

using lockstep::testing::wait_until;

TEST_F(LogRouterTest, FilesHoldTheBytesAndConsolesThePrefixedLines) {
  auto router = start_on_files({stream("0", 1, "[a0]:"), stream("1", 2, "[a1]:"), stream("2", -1, "[a2]:")});
  write_all(router->writer(0), "one\ntwo\n");
  write_all(router->writer(1), "three\r\n\nfour");
  write_all(router->writer(2), "unseen\n");
  EXPECT_TRUE(router->finish(kLong));
  EXPECT_TRUE(router->finish(kLong));
  EXPECT_EQ(text("0"), "one\ntwo\n");
  EXPECT_EQ(text("1"), "three\r\n\nfour");
  EXPECT_EQ(text("2"), "unseen\n");
  EXPECT_EQ(text("out"), "[a0]:one\n[a0]:two\n");
  EXPECT_EQ(text("err"), "[a1]:three\r\n[a1]:\n[a1]:four\n");
}

TEST_F(LogRouterTest, ACarriageReturnAloneEndsALineWhereverTheWritesAreCut) {
  auto router = start_on_files({stream("0", 1, ">")});
  const std::string text_in = "\r10%\r20%\r\nend\r\r\nx\r";
  for (std::size_t i = 0; i < text_in.size(); ++i) {
    write_all(router->writer(0), text_in.substr(i, 1));
    wait_until([&] { return text("0").size() == i + 1; });
  }
  EXPECT_TRUE(router->finish(kLong));
  EXPECT_EQ(text("0"), text_in);
  EXPECT_EQ(text("out"), ">\r>10%\r>20%\r\n>end\r>\r\n>x\r");
}

TEST_F(LogRouterTest, AWholeLineIsShownWhileItsWriterGoesOn) {
  auto router = start_on_files({stream("0", 1, ">")});
  write_all(router->writer(0), "shown\nnot ye");
  wait_until([&] { return text("out") == ">shown\n"; });
  write_all(router->writer(0), "t\n");
  wait_until([&] { return text("out") == ">shown\n>not yet\n"; });
  EXPECT_TRUE(router->finish(kLong));
}

TEST_F(LogRouterTest, GarbagePassesUntouched) {
  const std::string garbage = random_bytes(3 << 20);
  auto router = start_on_files({stream("0")});
  write_all(router->writer(0), garbage);
  EXPECT_TRUE(router->finish(kLong));
  EXPECT_EQ(text("0") == garbage, true);
  EXPECT_EQ(text("out") == garbage + (garbage.back() == '\n' || garbage.back() == '\r' ? "" : "\n"), true);
}

TEST_F(LogRouterTest, LongLinesOfTwoRanksAreNotMixed) {
  Pipe console;
  auto router = start({stream("0", 1, "[0]"), stream("1", 2, "[1]")}, console.writer.get(), console.writer.get());
  console.writer = UniqueFd();
  std::string seen;
  std::thread reader([&] { seen = read_all(console.reader.get()); });
  for (int part = 0; part < 5; ++part) {
    for (const std::size_t rank : {0U, 1U})
      write_all(router->writer(rank), std::string(1 << 20, rank == 0 ? 'a' : 'b'));
    write_all(router->writer(1), "\nshort\n");
  }
  write_all(router->writer(0), "\n");
  EXPECT_TRUE(router->finish(kLong));
  reader.join();
  const auto all = lines(seen);
  ASSERT_EQ(all.size(), 11u);
  for (const std::string& line : all)
    EXPECT_TRUE(line == "[0]" + std::string(5 << 20, 'a') || line == "[1]" + std::string(1 << 20, 'b') ||
                line == "[1]short")
        << line.size();
}

TEST_F(LogRouterTest, LinesOfManyWritersStayWhole) {
  constexpr int kWriters = 8, kLines = 2'000;
  Pipe console;
  std::vector<LogStream> streams;
  for (int i = 0; i < kWriters; ++i) streams.push_back(stream(std::to_string(i), 1 + i % 2, std::to_string(i) + ":"));
  auto router = start(streams, console.writer.get(), console.writer.get());
  console.writer = UniqueFd();
  std::vector<pid_t> writers;
  for (int i = 0; i < kWriters; ++i)
    writers.push_back(fork_child([&, i] {
      for (int n = 0; n < kLines; ++n) {
        const std::string line = std::to_string(n) + " " + std::string(std::size_t(n * 7 % 300), char('a' + i)) + "\n";
        // Cut in two, so that half lines are in the pipes.
        write_all(router->writer(std::size_t(i)), line.substr(0, line.size() / 2));
        write_all(router->writer(std::size_t(i)), line.substr(line.size() / 2));
      }
    }));
  router->close_writers();
  std::string seen;
  std::thread reader([&] { seen = read_all(console.reader.get()); });
  for (const pid_t pid : writers) EXPECT_EQ(wait_child(pid), 0);
  EXPECT_TRUE(router->finish(kLong));
  reader.join();
  std::map<int, int> next;
  for (const std::string& line : lines(seen)) {
    const int writer = line[0] - '0';
    const int n = next[writer]++;
    ASSERT_EQ(line, std::to_string(writer) + ":" + std::to_string(n) + " " +
                        std::string(std::size_t(n * 7 % 300), char('a' + writer)));
  }
  for (int i = 0; i < kWriters; ++i) EXPECT_EQ(next[i], kLines);
}

TEST_F(LogRouterTest, WithoutAFileLinesReachTheConsole) {
  LogStream unnamed = stream("", 1, ">");
  unnamed.file.clear();
  const std::string text_in = numbered_lines(5 << 20);
  auto router = start_on_files({unnamed});
  write_all(router->writer(0), text_in);
  EXPECT_TRUE(router->finish(kLong));
  const auto seen = lines(text("out")), sent = lines(text_in);
  ASSERT_EQ(seen.size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_EQ(seen[i], ">" + sent[i]);
}

TEST_F(LogRouterTest, FilteredLinesOfAllRanksShareAFile) {
  std::vector<LogStream> streams = {stream("0", 1, "[0]:"), stream("1", -1, "[1]:"), stream("2", 1, "[2]:")};
  for (const int i : {0, 1}) {
    streams[std::size_t(i)].filter_file = scratch_.file("filtered");
    streams[std::size_t(i)].filters = {"loss", "accuracy"};
  }
  auto router = start_on_files(streams);
  // In a line longer than any buffer, across the seam of two reads.
  const std::string far = std::string((64 << 10) - 2, 'x') + "loss" + std::string(1 << 20, 'x') + "\n";
  const std::string none = std::string(1 << 20, 'y') + "\n";
  write_all(router->writer(0), "loss 1\nother\n" + far + none + "accuracy\n");
  write_all(router->writer(1), "nothing\nthe loss");
  write_all(router->writer(2), "loss elsewhere\n");
  EXPECT_TRUE(router->finish(kLong));
  std::string of_0, of_1;
  for (const std::string& line : lines(text("filtered"))) (line.starts_with("[0]") ? of_0 : of_1) += line + "\n";
  EXPECT_EQ(of_0 == "[0]:loss 1\n[0]:" + far + "[0]:accuracy\n", true);
  EXPECT_EQ(of_1, "[1]:the loss\n");
}

}  // namespace
}  // namespace lockstep::launch
