#pragma once

// Where the value of a flag comes from, and what follows from it.

#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/flags/parse.h"

namespace lockstep::train {

/// Whether the flag is one of the program's, and was given.
bool given(const flags::Parsed& parsed, const std::string& flag);
/// Whether a recipe or a record gave it, and nothing stronger.
bool only_by_file(const flags::Parsed& parsed, const std::string& flag);

/// A flag that was given has no effect beside the others. All checks of flags say so by this class, and so none of them
/// refuses a recipe or a record for what the command line leaves without meaning there: parse_options() leaves that
/// out.
class NoMeaning : public UsageError {
 public:
  /// "FLAG VALUE has no meaning WHY"; an empty value is left out.
  NoMeaning(std::string flag, const std::string& value, const std::string& why);
  NoMeaning(std::string flag, const std::string& why) : NoMeaning(std::move(flag), "", why) {}

  const std::string& flag() const { return flag_; }

 private:
  std::string flag_;
};

}  // namespace lockstep::train
