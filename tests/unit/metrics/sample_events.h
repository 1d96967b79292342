#pragma once

// Events and a temporary folder that the tests of lockstep/metrics share.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "lockstep/metrics/event.h"

namespace lockstep::metrics {

inline Event train_event() {
  return {.kind = Kind::train,
          .time = 1000.25,
          .fields = {{"step", std::int64_t(300)},
                     {"epoch", std::int64_t(2)},
                     {"loss", 0.1},
                     {"lr", 1e-4},
                     {"samples_per_second", 12345.678}}};
}

inline Event eval_event() {
  return {.kind = Kind::eval,
          .time = 1001.5,
          .fields = {{"step", std::int64_t(600)},
                     {"epoch", std::int64_t(2)},
                     {"loss", 1.0 / 3},
                     {"top1", 0.9875},
                     {"samples", std::int64_t(10000)}}};
}

inline Event done_event() {
  return {.kind = Kind::done,
          .time = 1002,
          .fields = {{"seconds", 12.34},
                     {"steps", std::int64_t(600)},
                     {"attempt_steps", std::int64_t(600)},
                     {"samples_per_second", 9999.6},
                     {"weights_hash", std::string("00ff")}}};
}

/// The event without one of its fields.
inline Event without(Event event, const std::string& name) {
  std::erase_if(event.fields, [&](const auto& field) { return field.first == name; });
  return event;
}

/// A folder of its own for one test, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = ::testing::TempDir() + "lockstep_metrics_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace lockstep::metrics
