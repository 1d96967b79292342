#pragma once

// Flags that stand in a file: one JSON object, "batch_size": 64 for --batch-size. What flags::json() writes is such a
// file, so the record of a run is a way to repeat it.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::flags {

/// The flags of one file, not compared with a table yet.
struct FlagFile {
  std::string name;                                         ///< for messages: "file 'x.json'"
  std::vector<std::pair<std::string, std::string>> values;  ///< key, with underscores; value, as JSON
};

/// UsageError naming the file when `text` is no JSON object (the offset), or has a key twice.
FlagFile read_flag_file(std::string_view text, const std::string& name);

}  // namespace lockstep::flags
