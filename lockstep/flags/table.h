#pragma once

// The flags of a program as one table: a row says all that is to be said of a flag, and what reads a command line
// (parse.h), the help and the record are made of the rows.
//
//   struct Options { std::int64_t epochs = 1; bool eval = true; };
//
//   flags::Table table_of(Options& options) {
//     return {.usage = "lockstep train [options]",
//             .groups = {{"Job", {{"--epochs", flags::integer(options.epochs, 0, 1000), "Passes over the data"},
//                                 {"--no-eval", flags::off(options.eval), "Do not evaluate"}}}}};
//   }
//
// A table belongs to the options that it was made for: it reads and writes them while it lives, and the default of a
// flag is what they held when it was made.

#include <functional>
#include <string>
#include <vector>

namespace lockstep::flags {

/// What becomes of a flag's value. values.h makes those of the usual types.
struct Value {
  std::string word = {};     ///< what the help calls it, "N"; empty: the flag is a switch, which is given or not
  std::string choices = {};  ///< "mlp|convnet", in front of the help's text; empty: not so many that they can be told
  std::string initial = {};  ///< the default, for the help; empty: nothing is said of it
  /// Checks and keeps it; of a switch it is "". UsageError that begins with `name`, the flag's long one or that of its
  /// variable, and says what was found and what would be right.
  std::function<void(const std::string& name, const std::string& value)> read = {};
  /// What is held now, as JSON. None: it is not recorded.
  std::function<std::string()> json = {};
  std::string alone = {};  ///< the value of the flag that is given without one, "--amp"; empty: it needs one
  bool negated = false;    ///< a switch --no-x, recorded as x
};

/// A row.
struct Flag {
  std::string names;                   ///< "-b, --batch-size", or the long one alone; dashes and underscores are alike
  Value value;                         ///< how it is read, where it goes, how it is written
  std::string help = {};               ///< one line
  std::string otherwise = {};          ///< what holds when it is not given, where the default does not say it
  std::vector<std::string> also = {};  ///< what other programs call it, "--wd" or "-p": taken on a command line, and
                                       ///< told in the help; messages, record and environment have the name above
};

/// The long name, "--batch-size": by it messages and programs call the flag.
std::string name_of(const Flag& flag);

/// By what it stands in the record: "batch_size"; "eval" for --no-eval.
std::string key_of(const Flag& flag);

/// What stands behind it: "NAME", or "[NAME]" where it may be left out; "" of a switch.
std::string word_of(const Flag& flag);

/// What the help says of it: "mlp|convnet: what is trained [mlp]", the choices, the text, the default.
std::string text_of(const Flag& flag);

/// The same flag, to which these names lead, too.
Flag also_called(std::vector<std::string> names, Flag flag);

/// The same flag, left out of the record: it says where and how a program runs, not what comes out.
Flag unrecorded(Flag flag);

/// Flags that stand together in the help; without a title they follow --help.
struct Group {
  std::string title;
  std::vector<Flag> flags;
};

/// Words of a command line that belong to no flag.
enum class Operands {
  none,     ///< are an error
  some,     ///< stand anywhere; all that follows "--" is one
  program,  ///< another program and its arguments: flags end at the first such word, or at "--"
};

/// "unknown option '--optt': did you mean '--opt'? (one of ...)": `names` are those of all flags.
std::string unknown_option(const std::string& name, const std::vector<std::string>& names);

/// All that a command line may say. Every table has -h and --help besides.
struct Table {
  std::string usage;          ///< "lockstep train [options]"
  std::string about = {};     ///< what the program does; whole lines
  std::vector<Group> groups;  ///< in the order of the help
  std::string after = {};     ///< what the help says below the flags; whole lines
  std::string version = {};   ///< what --version prints; empty: there is no such flag
  std::string prefix = {};    ///< of each message, "run: "
  /// A flag that the command line does not give is looked for in the environment, under this and its name: "PET_" for
  /// PET_MAX_RESTARTS. A switch is 0 or 1 there, and an empty variable says nothing. Empty: the environment is not
  /// looked at.
  std::string variables = {};
  Operands operands = Operands::none;
  bool repeats = false;  ///< a flag may be given several times, and the last one holds; else that is an error
  std::string (*unknown)(const std::string& name, const std::vector<std::string>& names) = unknown_option;
};

/// The rows that every table has: of -h and --help, and of --version where it has one.
std::vector<Flag> standing_flags(const Table& table);

/// All rows in the order of the help, the standing ones first.
std::vector<Flag> all_flags(const Table& table);

/// All names of the table's flags, short and long, as a user may type them.
std::vector<std::string> names_of(const Table& table);

/// The text of --help.
std::string help(const Table& table);

/// What --help calls a group: "learning-rate" of the title "Learning rate".
std::string name_of(const Group& group);

/// Whether the table has groups that can be asked for.
bool has_groups(const Table& table);

/// The text of --help GROUP; `name` is a group's, or its beginning where it is no other's. UsageError with all names
/// when there is none.
std::string help(const Table& table, const std::string& name);

/// What the options hold now, as one JSON object with a line for each recorded flag: "--batch-size" is batch_size. What
/// a run keeps of its flags.
std::string json(const Table& table);

}  // namespace lockstep::flags
