#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/metrics/csv.h"
#include "lockstep/metrics/jsonl.h"
#include "lockstep/metrics/run_files.h"
#include "sample_events.h"

namespace lockstep::metrics {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  if (!text.empty() && text.back() == separator && separator != '\n') parts.emplace_back();
  return parts;
}

TEST(JsonLines, EveryLineIsAnObjectWithUnroundedNumbers) {
  TemporaryFolder folder;
  JsonLines sink(folder.file("metrics.jsonl"));
  for (const Event& event : {train_event(), eval_event(), done_event()}) sink.write(event);
  const std::vector<std::string> lines = split(read_all(folder.file("metrics.jsonl")), '\n');
  ASSERT_EQ(lines.size(), 3u);
  const auto train = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(train["event"], "train");
  EXPECT_EQ(train["time"].get<double>(), 1000.25);
  EXPECT_EQ(train["step"].get<std::int64_t>(), 300);
  EXPECT_TRUE(train["step"].is_number_integer());
  EXPECT_EQ(train["loss"].get<double>(), 0.1);
  EXPECT_EQ(train["samples_per_second"].get<double>(), 12345.678);
  EXPECT_EQ(nlohmann::json::parse(lines[1])["loss"].get<double>(), 1.0 / 3);
  EXPECT_EQ(nlohmann::json::parse(lines[2])["weights_hash"], "00ff");
}

TEST(JsonLines, FieldsKeepTheirOrder) {
  EXPECT_EQ(json_line(train_event()), R"({"event":"train","time":1000.25,"step":300,"epoch":2,"loss":0.1,"lr":0.0001,)"
                                      R"("samples_per_second":12345.678})");
}

TEST(JsonLines, NumbersThatJsonLacksAndBadTextStayReadable) {
  Event event{.kind = Kind::fault, .time = 1, .fields = {{"loss", std::nan("")}, {"cause", std::string("a\nb\xff\"")}}};
  const auto object = nlohmann::json::parse(json_line(event));
  EXPECT_EQ(object["loss"], "nan");
  EXPECT_EQ(object["cause"], "a\nb\xEF\xBF\xBD\"");
  EXPECT_EQ(json_line(event).find('\n'), std::string::npos);
}

TEST(JsonLines, AKilledWriterLeavesWholeLines) {
  TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  const pid_t child = fork();
  if (child == 0) {
    JsonLines sink(path);
    for (int i = 0; i < 50; ++i) sink.write(train_event());
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  const std::string text = read_all(path);
  EXPECT_EQ(split(text, '\n').size(), 50u);
  EXPECT_EQ(text.back(), '\n');
}

TEST(Csv, RowsHaveTheColumnsOfTheHeader) {
  TemporaryFolder folder;
  {
    Csv sink(folder.file("metrics.csv"));
    for (const Event& event : {train_event(), done_event(), eval_event()}) sink.write(event);
  }
  Csv(folder.file("metrics.csv")).write(train_event());  // a second header would be a wrong row
  const std::vector<std::string> lines = split(read_all(folder.file("metrics.csv")), '\n');
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], kCsvHeader);
  const std::size_t columns = split(kCsvHeader, ',').size();
  for (const std::string& line : lines) EXPECT_EQ(split(line, ',').size(), columns) << line;
  EXPECT_EQ(lines[1], "train,1000.25,300,2,0.1,1e-04,12345.678,,,,,,,,,,,");
  const std::vector<std::string> eval = split(lines[2], ',');
  EXPECT_EQ(eval[0], "eval");
  EXPECT_EQ(std::stod(eval[4]), 1.0 / 3);
  EXPECT_EQ(eval[7], "0.9875");
  EXPECT_EQ(eval[8], "10000");
}

TEST(Csv, WhatWasNotMeasuredStaysEmpty) {
  EXPECT_EQ(csv_row(without(train_event(), "samples_per_second")), "train,1000.25,300,2,0.1,1e-04,,,,,,,,,,,,");
}

TEST(Csv, TheNormOfTheGradientsIsTheLastColumn) {
  Event event = train_event();
  event.fields.emplace_back("gradient_norm", 2.5);
  EXPECT_EQ(csv_row(event), "train,1000.25,300,2,0.1,1e-04,12345.678,,,,,,,,,,,2.5");
}

TEST(Csv, AnEvaluationOfAnotherTaskLeavesTheColumnsOfAClassifierEmpty) {
  EXPECT_EQ(csv_row(without(without(eval_event(), "top1"), "loss")), "eval,1001.5,600,2,,,,,10000,,,,,,,,,");
  Event regression = without(without(eval_event(), "top1"), "loss");
  regression.fields.insert(regression.fields.end(),
                           {{"mae", 0.5}, {"r2", 0.75}, {"ema_loss", 2.0}, {"ema_r2", -1.0}, {"top5", 0.5}});
  EXPECT_EQ(csv_row(regression), "eval,1001.5,600,2,,,,,10000,0.5,0.75,2,,,-1,0.5,,");
}

TEST(Csv, AnEventWithoutItsFieldsIsRefused) {
  EXPECT_THROW(csv_row({.kind = Kind::train, .time = 1, .fields = {{"step", std::int64_t(1)}}}), Error);
}

// As on a disk that takes the first ten bytes of a file.
void append_beyond_ten_bytes(LineFile& file, const std::string& path) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 10, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THAT([&] { file.append("second line\n"); }, ThrowsMessage<Error>(HasSubstr(path)));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
}

// As a machine that went down leaves it.
TEST(LineFile, ATornLineIsCutOffBeforeTheNext) {
  TemporaryFolder folder;
  const std::string lines = folder.file("metrics.jsonl"), rows = folder.file("metrics.csv");
  const std::string whole = json_line(train_event()) + "\n";
  std::ofstream(lines) << whole << whole.substr(0, 30);
  std::ofstream(rows) << kCsvHeader << "\n" << csv_row(train_event()) << "\ntrain,1";
  JsonLines(lines).write(train_event());
  Csv(rows).write(train_event());
  EXPECT_EQ(read_all(lines), whole + whole);
  EXPECT_EQ(read_all(rows),
            std::string(kCsvHeader) + "\n" + csv_row(train_event()) + "\n" + csv_row(train_event()) + "\n");
  std::ofstream(rows) << "event,ti";
  Csv(rows).write(train_event());
  EXPECT_EQ(read_all(rows), std::string(kCsvHeader) + "\n" + csv_row(train_event()) + "\n") << "a torn header";
}

TEST(LineFile, ErrorsNameTheFile) {
  EXPECT_THAT([] { LineFile("/nowhere/metrics.jsonl"); }, ThrowsMessage<Error>(HasSubstr("/nowhere/metrics.jsonl: ")));
  LineFile full("/dev/full");
  EXPECT_THAT([&] { full.append("line\n"); }, ThrowsMessage<Error>(HasSubstr("/dev/full: No space left on device")));
}

TEST(LineFile, WhatTheDiskRefusesIsLeftOutAndToldOnceWhereThatIsWanted) {
  LineFile full("/dev/full");
  full.when_refused(WhenRefused::leaves_out);
  ::testing::internal::CaptureStderr();
  EXPECT_NO_THROW(full.append("line\n"));
  EXPECT_NO_THROW(full.append("another\n"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: warning: '/dev/full': No space left on device; what it does not take is left out, training goes "
            "on\n");
}

TEST(LineFile, ARecordThatDoesNotFitIsTakenBack) {
  TemporaryFolder folder;
  const std::string path = folder.file("small");
  LineFile file(path);
  file.append("first\n");
  append_beyond_ten_bytes(file, path);
  EXPECT_EQ(read_all(path), "first\n");
}

// As of a disk that takes half of it and fails then.
TEST(LineFile, NothingIsWrittenBehindAPartThatCannotBeTakenBack) {
  const base::UniqueFd memory(::memfd_create("lines", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::string path = "/proc/self/fd/" + std::to_string(memory.get());
  LineFile file(path);
  file.append("first\n");
  ASSERT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  append_beyond_ten_bytes(file, path);
  ASSERT_EQ(read_all(path), "first\nseco");
  EXPECT_THAT([&] { file.append("third line\n"); }, ThrowsMessage<Error>(HasSubstr(path)));
  EXPECT_EQ(read_all(path), "first\nseco") << "the third would be glued to it";
}

TEST(RunFiles, ThatMistakesCannotBeReplacedIsToldOnce) {
  TemporaryFolder folder;
  RunFiles files(folder.file("run"), "{}\n", {.run_id = "job 1"});
  std::filesystem::create_directory(folder.file("run/mistakes.json"));
  ::testing::internal::CaptureStderr();
  files.show_mistakes(1, {});
  files.show_mistakes(2, {});
  const std::vector<std::string> told = split(::testing::internal::GetCapturedStderr(), '\n');
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], AllOf(HasSubstr("lockstep: warning: cannot write '"), HasSubstr("training goes on")));
}

class Counting : public Sink {
 public:
  explicit Counting(int& count) : count_(count) {}
  void write(const Event&) override { ++count_; }

 private:
  int& count_;
};

class Failing : public Sink {
 public:
  void write(const Event&) override { throw Error("disk full"); }
};

TEST(MultiSink, AFailureIsThrownAfterAllHaveTheEvent) {
  int before = 0, after = 0;
  MultiSink sinks;
  sinks.add(std::make_unique<Counting>(before));
  sinks.write(train_event());
  sinks.add(std::make_unique<Failing>());
  sinks.add(std::make_unique<Counting>(after));
  EXPECT_THAT([&] { sinks.write(train_event()); }, ThrowsMessage<Error>("disk full"));
  EXPECT_EQ(before, 2);
  EXPECT_EQ(after, 1);
}

}  // namespace
}  // namespace lockstep::metrics
