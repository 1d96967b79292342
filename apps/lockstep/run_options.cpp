#include "run_options.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "lockstep/base/control_page.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::app {
namespace {

// CLI11 is not used here: it has no notion of a program whose own flags follow ours.
struct Flag {
  std::vector<std::string> names;
  std::string value;  // what the help calls its value; empty: it takes none
  std::string help;
  std::function<void(RunOptions&, const std::string& name, const std::string& value)> apply;
};

int number(const std::string& name, const std::string& text, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    throw UsageError("run: " + name + " '" + text + "' is not a number from " + std::to_string(low) + " to " +
                     std::to_string(high));
  return value;
}

const std::vector<Flag>& flags() {
  static const std::vector<Flag> table = {
      {{"-n", "--nproc-per-node"},
       "N",
       "worker processes on this machine (default 1)",
       [](RunOptions& options, const std::string& name, const std::string& value) {
         options.nproc_per_node = number(name, value, 1, base::kMaxLocalRanks);
       }},
      {{"--grace-period"},
       "SECONDS",
       "from SIGTERM to SIGKILL when the job ends early (default 10)",
       [](RunOptions& options, const std::string& name, const std::string& value) {
         options.grace = std::chrono::seconds(number(name, value, 0, 86'400));
       }},
      {{"--standalone"},
       "",
       "one machine; always so today, accepted because torchrun has it",
       [](RunOptions&, const std::string&, const std::string&) {}},
      {{"-h", "--help"},
       "",
       "this text",
       [](RunOptions& options, const std::string&, const std::string&) { options.help = true; }},
  };
  return table;
}

const Flag& find_flag(const std::string& name) {
  std::vector<std::string> names;
  for (const Flag& flag : flags()) {
    if (std::ranges::find(flag.names, name) != flag.names.end()) return flag;
    names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  throw UsageError("run: " + base::unknown_name("option", name, names));
}

// What one word of the command line says: "--grace_period=3", "-n2", "--standalone".
struct Word {
  std::string name;
  std::string value;
  bool has_value = false;
};

Word take_apart(const std::string& word) {
  if (!word.starts_with("--"))  // a short option's value may follow it directly
    return {word.substr(0, 2), word.substr(std::min<std::size_t>(2, word.size())), word.size() > 2};
  const std::size_t equals = std::min(word.find('='), word.size());
  Word parts{word.substr(0, equals), {}, equals < word.size()};
  if (parts.has_value) parts.value = word.substr(equals + 1);
  std::replace(parts.name.begin(), parts.name.end(), '_', '-');
  return parts;
}

}  // namespace

RunOptions parse_run_options(const std::vector<std::string>& arguments) {
  RunOptions options;
  auto at = arguments.begin();
  for (; at != arguments.end() && at->size() > 1 && at->front() == '-'; ++at) {
    if (*at == "--") {
      ++at;
      break;
    }
    Word word = take_apart(*at);
    const Flag& flag = find_flag(word.name);
    if (flag.value.empty() && word.has_value) throw UsageError("run: " + word.name + " takes no value: " + *at);
    if (!flag.value.empty() && !word.has_value) {
      if (++at == arguments.end()) throw UsageError("run: " + word.name + " needs a value: " + flag.value);
      word.value = *at;
    }
    flag.apply(options, word.name, word.value);
    if (options.help) return options;
  }
  options.command.assign(at, arguments.end());
  if (options.command.empty()) throw UsageError("run: no program given: lockstep run [options] program [arguments]");
  return options;
}

std::string run_help() {
  std::string text =
      "usage: lockstep run [options] program [arguments]\n\n"
      "Runs the program as the workers of one job on this machine, in torchrun's environment.\n"
      "A program whose name ends in .py is run by the python3 in PATH.\n\noptions:\n";
  for (const Flag& flag : flags()) {
    std::string names = "  " + base::join(flag.names) + (flag.value.empty() ? "" : " " + flag.value);
    names.resize(std::max<std::size_t>(names.size() + 2, 32), ' ');
    text += names + flag.help + "\n";
  }
  return text +
         "\nThe exit code is that of the first failure, 128 + n for signal n, 126 or 127 when the\n"
         "program cannot be executed, 2 for wrong use.\n";
}

}  // namespace lockstep::app
