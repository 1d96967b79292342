#pragma once

// Small helpers for messages to a person. Pure functions, thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

/// The name in `valid` that somebody who wrote `wrong` most likely meant, "" when none is
/// near. Near: at most a third of the length of `wrong` in edits (but one or two always),
/// where an edit inserts, deletes, changes or swaps neighbouring letters, upper and lower
/// case alike; else the only name that begins with `wrong`. The first of equals wins.
std::string nearest(std::string_view wrong, const std::vector<std::string>& valid);

/// "a, b, c".
std::string join(const std::vector<std::string>& words, std::string_view separator = ", ");

/// "unknown model 'convnot': did you mean 'convnet'? (one of mlp, convnet)"; without the
/// question when no name is near.
std::string unknown_name(std::string_view kind, std::string_view wrong, const std::vector<std::string>& valid);

/// `text` on one line and without power over a terminal: control characters as `\n`, `\r`, `\t` or `\x1b`, bytes that
/// are no UTF-8 as `\xff`. Other UTF-8 stays, and so does a backslash: shown(shown(text)) is shown(text).
std::string shown(std::string_view text);

/// ASCII letters as small ones; whatever else stays.
std::string small_letters(std::string text);

/// "0, 3 to 7": rising numbers, of which runs are told by their ends.
std::string runs_text(const std::vector<int>& numbers);

/// "512 B", "32.0 MiB", "2.0 GiB".
std::string size_text(std::uint64_t bytes);

}  // namespace lockstep::base
