#pragma once

// Words for error messages: the nearest valid name, lists of names.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

/// The name that is nearest to `word` by edit distance (the first of equals); empty when
/// `names` is empty.
std::string nearest(std::string_view word, const std::vector<std::string>& names);

/// "a, b, c".
std::string join(const std::vector<std::string>& words, std::string_view separator = ", ");

/// "unknown model 'convnett': did you mean 'convnet'? (one of mlp, convnet)".
std::string unknown_name(std::string_view kind, std::string_view word, const std::vector<std::string>& names);

}  // namespace lockstep::base
