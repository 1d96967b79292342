#include "recipe_runs.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "child.h"
#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// A folder of this process's own, gone with the object.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "lockstep-runs-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error("cannot make " + name + ": " + std::strerror(errno));
    path_ = name;
  }
  Scratch(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string with_dashes(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

bool has_flag(const Words& words, const std::string& flag) {
  return std::ranges::any_of(
      words, [&](const std::string& word) { return with_dashes(word.substr(0, word.find('='))) == flag; });
}

// Takes "--flag value" or "--flag=value" out of the words.
std::optional<std::string> taken(Words& words, const std::string& flag) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    if (with_dashes(words[i].substr(0, equals)) != flag) continue;
    const bool apart = equals == std::string::npos;
    if (apart && i + 1 == words.size()) return {};
    const std::string value = apart ? words[i + 1] : words[i].substr(equals + 1);
    words.erase(words.begin() + std::ptrdiff_t(i), words.begin() + std::ptrdiff_t(i + (apart ? 2 : 1)));
    return value;
  }
  return {};
}

// As the flags read it: LOCKSTEP_OUTPUT_DIR for --output-dir. Empty where there is none.
std::string from_environment(const std::string& flag) {
  std::string name = "LOCKSTEP_" + flag.substr(2);
  for (char& letter : name) letter = letter == '-' ? '_' : char(std::toupper(static_cast<unsigned char>(letter)));
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

// "--flag=0" goes before the environment.
bool is_switched_on(const Words& words, const std::string& flag) {
  for (const std::string& word : words)
    if (with_dashes(word.substr(0, word.find('='))) == flag) return !word.ends_with("=0");
  return from_environment(flag) == "1";
}

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

double last_of(const std::map<std::string, page::Points>& part, const std::string& field) {
  const auto found = part.find(field);
  return found == part.end() ? std::nan("") : page::RunRecord::last(found->second);
}

std::string fact_of(const page::RunRecord& record, const std::string& name) {
  for (const auto& [key, value] : record.facts)
    if (key == name) return value;
  return "–";
}

std::string number_text(const char* pattern, double value) {
  if (!std::isfinite(value)) return "–";
  char text[48];
  std::snprintf(text, sizeof(text), pattern, value);
  return text;
}

// A dash counts as one letter.
std::size_t width_of(const std::string& text) {
  return std::size_t(std::ranges::count_if(text, [](char letter) { return (letter & 0xC0) != 0x80; }));
}

std::string aligned(const std::vector<Words>& rows) {
  std::string text;
  for (const Words& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t widest = 0;
      for (const Words& other : rows) widest = std::max(widest, width_of(other[column]));
      const std::string gap(widest - width_of(row[column]), ' ');
      line += (column == 0 ? row[column] + gap : "  " + gap + row[column]);
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string comparison(const std::vector<MethodResult>& results) {
  std::vector<Words> rows = {{"method", "processes", "batch", "ms/sample", "ratio", "s/epoch", "top-1 %"}};
  double first = std::nan("");
  for (const auto& [method, record] : results) {
    const double rate = last_of(record.train, "samples_per_second");
    if (rows.size() == 1) first = rate;
    const double samples = std::strtod(fact_of(record, "train_samples").c_str(), nullptr);
    rows.push_back({method, fact_of(record, "world_size"), fact_of(record, "global_batch_size"),
                    number_text("%.3f", 1000 / rate), number_text("%.2f", rate / first),
                    number_text("%.1f", samples / rate), number_text("%.2f", 100 * last_of(record.eval, "top1"))});
  }
  return aligned(rows);
}

const train::Recipe* recipe_of_runs(const std::vector<std::string>& arguments) {
  if (has_flag(arguments, "--help") || has_flag(arguments, "-h")) return nullptr;
  Words words = arguments;
  const char* variable = std::getenv("LOCKSTEP_RECIPE");
  const std::string name = taken(words, "--recipe").value_or(variable != nullptr ? variable : "");
  for (const train::Recipe& recipe : train::recipes())
    if (recipe.name == name && !train::runs_of(recipe).empty()) return &recipe;
  return nullptr;
}

int run_recipe(const train::Recipe& recipe, const std::vector<std::string>& arguments) {
  Words words = arguments;
  taken(words, "--recipe");
  for (const char* flag : {"--config", "--save-weights", "--save-ema-weights"})
    if (has_flag(words, flag) || !from_environment(flag).empty())
      throw UsageError(std::string(flag) + " with --recipe " + recipe.name +
                       ", which is several runs with flags and files of their own");
  const bool keeps_files = !is_switched_on(words, "--fast-dev-run");
  const Scratch scratch;
  const std::string wanted = taken(words, "--output-dir").value_or(from_environment("--output-dir"));
  const std::string folder = wanted.empty() ? scratch.path() : wanted;
  const std::vector<train::RecipeRun> runs = train::runs_of(recipe);
  std::vector<MethodResult> results;
  for (const train::RecipeRun& run : runs) {
    const std::string config = scratch.path() + "/" + run.method + ".json";
    if (!(std::ofstream(config, std::ios::binary) << run.text).flush()) throw Error("cannot write " + config);
    base::tell(STDERR_FILENO, "lockstep: recipe " + recipe.name + ", run " + std::to_string(results.size() + 1) +
                                  " of " + std::to_string(runs.size()) + ": " + run.method + "\n");
    const std::string place = folder + "/" + run.method;
    if (const int code = run_child(own_folder() + "/lockstep",
                                   joined({"train"}, joined(words, {"--config", config, "--output-dir", place})),
                                   {"LOCKSTEP_RECIPE"});
        code != kExitDone)
      return code;
    results.push_back({run.method, keeps_files ? page::read_run(place) : page::RunRecord{}});
  }
  if (!keeps_files) return kExitDone;  // one step each: there is nothing to compare
  const std::string table = comparison(results);
  return std::fputs(table.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? kExitFailure : kExitDone;
}

}  // namespace lockstep::app
