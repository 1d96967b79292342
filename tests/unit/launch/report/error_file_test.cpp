#include "lockstep/launch/report/error_file.h"

#include <gtest/gtest.h>

#include <fstream>

namespace lockstep::launch {
namespace {

TEST(WorkerErrors, TorchelasticsForm) {
  const auto error = parse_worker_error(
      R"({"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1"}}})");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message, "ValueError: bad");
  EXPECT_EQ(error->traceback, "Traceback");
}

TEST(WorkerErrors, TheOlderFormAndMissingParts) {
  EXPECT_EQ(parse_worker_error(R"({"message": "plain", "timestamp": 3})")->message, "plain");
  EXPECT_EQ(parse_worker_error(R"({"message": {"message": "m"}})")->traceback, "");
  EXPECT_EQ(parse_worker_error(R"({"message": {"message": 3, "extraInfo": "x"}})")->message, "");
}

TEST(WorkerErrors, AnythingElseIsNone) {
  for (const char* text : {"", "{", "[]", "3", "{}", R"({"message": 3})", "\xff\xfe", R"({"other": "m"})"})
    EXPECT_FALSE(parse_worker_error(text).has_value()) << text;
}

TEST(ErrorFileInMemory, IsWrittenByItsPath) {
  const ErrorFile file;
  EXPECT_FALSE(file.written().has_value());
  EXPECT_FALSE(file.read().has_value());
  std::ofstream(file.path()) << R"({"message": {"message": "m"}})";
  EXPECT_TRUE(file.written().has_value());
  EXPECT_EQ(file.read()->message, "m");
}

TEST(ErrorFileByName, NeedNotExist) {
  const std::string path = testing::TempDir() + "lockstep-error-file-test.json";
  std::remove(path.c_str());
  const ErrorFile file(path);
  EXPECT_FALSE(file.written().has_value());
  EXPECT_FALSE(file.read().has_value());
  std::ofstream(path) << R"({"message": "m"})";
  EXPECT_GT(file.written().value_or(0), 1.0e9);
  EXPECT_EQ(file.read()->message, "m");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace lockstep::launch
