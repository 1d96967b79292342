#pragma once

// The real data sets that some tests read. The target defines LOCKSTEP_TEST_DATA_DEFAULT, where they are looked for.

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::testing {

/// Their folder: the environment's LOCKSTEP_TEST_DATA, or the default.
inline std::filesystem::path real_data() {
  const char* given = std::getenv("LOCKSTEP_TEST_DATA");
  return given != nullptr && *given != '\0' ? given : LOCKSTEP_TEST_DATA_DEFAULT;
}

/// Why a test that reads these files and folders of it has to be skipped; "" when all are there.
inline std::string missing_data(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!std::filesystem::exists(real_data() / name)) {
      return "no '" + (real_data() / name).string() + "'; set LOCKSTEP_TEST_DATA to have it read";
    }
  }
  return {};
}

/// The four files of MNIST, as they are downloaded.
inline std::vector<std::string> mnist_files() {
  return {"mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz", "mnist/t10k-images-idx3-ubyte.gz",
          "mnist/t10k-labels-idx1-ubyte.gz"};
}

}  // namespace lockstep::testing
