#include "lockstep/data/fetch/sums_file.h"

#include <filesystem>
#include <fstream>

#include "lockstep/data/fetch/sha256.h"

namespace lockstep::data {

std::string sums_text(const std::vector<FileSum>& sums) {
  std::string text;
  for (const FileSum& sum : sums) text += sum.sha256 + "  " + sum.name + "\n";
  return text;
}

std::string sums_objection(const std::string& folder) {
  constexpr std::size_t kDigits = 64, kName = kDigits + 2;
  std::ifstream file(folder + "/" + kSumsFile);
  if (!file) return std::string("no ") + kSumsFile + " in it";
  bool any = false;
  for (std::string line; std::getline(file, line); any = true) {
    if (line.size() <= kName) return std::string("a line of ") + kSumsFile + " is damaged";
    const std::string name = line.substr(kName);
    if (!std::filesystem::is_regular_file(folder + "/" + name)) return "'" + name + "' is missing";
    const std::string sum = sha256_of_file(folder + "/" + name);
    if (sum != line.substr(0, kDigits))
      return "'" + name + "' has SHA-256 " + sum + ", " + line.substr(0, kDigits) + " expected";
  }
  return any ? "" : std::string(kSumsFile) + " is empty";
}

}  // namespace lockstep::data
