#pragma once

// Weights of others in their spelling: which of their names is which of ours. Pure functions; no libtorch.

#include <map>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

/// From one spelling to the other. In both one star may stand for any letters, dots too, the same in both.
struct NameRule {
  std::string theirs;  ///< "backbone.*"
  std::string ours;    ///< "*"; empty: the tensor is left out
};

/// The first rule that a name fits counts; a name that fits none stays.
using NameMap = std::vector<NameRule>;

/// "THEIRS=OURS,THEIRS=OURS", or the path of a file with one such rule a line, where empty lines and those that begin
/// with # say nothing. Empty: no rules. UsageError naming the rule, and in a file its line, that is none; and for a
/// file that cannot be read or has no rules.
NameMap name_map(const std::string& text);

/// What each name becomes; names that are left out are not in it. UsageError when a rule fits none of the names, with a
/// near one, when two names become the same one, or when all are left out; `path` says whose names they are.
std::map<std::string, std::string> renamed(const std::vector<std::string>& names, const NameMap& map,
                                           const std::string& path);

}  // namespace lockstep::checkpoint
