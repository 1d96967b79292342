#pragma once

// SHA256SUMS, the file that `sha256sum -c` reads: written into a folder that was unpacked, it tells later
// whether the folder is still whole.

#include <string>
#include <vector>

namespace lockstep::data {

struct FileSum {
  std::string name;
  std::string sha256;
};

inline constexpr const char* kSumsFile = "SHA256SUMS";

std::string sums_text(const std::vector<FileSum>& sums);

/// "" when `folder` has a SHA256SUMS and every file named there has its sum; else what differs, in words.
std::string sums_objection(const std::string& folder);

}  // namespace lockstep::data
