#pragma once

// What a shell completes of a program's command line, as a script for that shell: commands, flags, the values of flags
// that take one of several, files and folders, the operands that are known. Pure functions, thread-safe.
//
// A flag whose value is a DIR or FOLDER completes to folders, one whose value is a FILE to files; a flag that has
// choices, to these. Behind a command that runs a program (Operands::program) the words are that program's.

#include <string>
#include <vector>

#include "lockstep/flags/command.h"

namespace lockstep::flags {

enum class Shell { bash, zsh, fish };

/// The script, which is read by `source`, or lies where the shell looks for one: bash-completion/completions/NAME,
/// zsh/site-functions/_NAME, fish/vendor_completions.d/NAME.fish.
std::string completion(const Command& root, Shell shell);

namespace detail {

/// What may stand where a value or an operand does.
enum class Follows { nothing, choices, files, folders, anything };

/// Behind a flag; nothing: it is a switch.
Follows follows(const Value& value);

/// The names in Value::choices.
std::vector<std::string> choices_of(const Value& value);

/// In the places of operands.
Follows follows(const Command& command);

/// "-b, --batch-size": "-b", "" when there is none.
std::string short_name_of(const Flag& flag);

/// `text` with each `from` replaced.
std::string replaced(std::string text, const std::string& from, const std::string& to);

std::string bash_completion(const Command& root);
std::string zsh_completion(const Command& root);
std::string fish_completion(const Command& root);

}  // namespace detail
}  // namespace lockstep::flags
