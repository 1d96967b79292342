#pragma once

// The fixture of tests that read what `lockstep run --report` has written.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/scratch_folder.h"

namespace lockstep::testing {

class ReportedJob : public ::testing::Test {
 protected:
  std::string report_file() const { return folder_.file("report.json"); }
  nlohmann::json written_report() const { return nlohmann::json::parse(std::ifstream(report_file())); }

  /// `lockstep run --report ... <options> sh -c <script>`.
  std::vector<std::string> shell(const std::vector<std::string>& options, const std::string& script) const {
    std::vector<std::string> command{LOCKSTEP_PROGRAM, "run", "--report", report_file()};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"sh", "-c", script});
    return command;
  }

  ScratchFolder folder_;
};

}  // namespace lockstep::testing
