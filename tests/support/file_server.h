#pragma once

// A web server of a test's own, on 127.0.0.1: tests/support/file_server.py.

#include <string>
#include <vector>

#include "tests/support/job.h"

namespace lockstep::testing {

/// Ends with the object. No proxy of the environment is asked for it, by this process and those it starts.
class FileServer {
 public:
  explicit FileServer(const std::string& folder);

  /// The address of the folder, served in the manner `how` ("plain", "drop", ...).
  std::string url(const std::string& how = "plain") const;

  /// What was asked for so far: "plain NAME -", or with "100-" for a range.
  std::vector<std::string> requests() const;

 private:
  Job job_;
  std::string port_;
};

}  // namespace lockstep::testing
