// lockstep recipes: the jobs that `lockstep train --recipe` knows.

#include <cstdio>

#include "commands.h"
#include "lockstep/base/error.h"
#include "lockstep/flags/parse.h"
#include "lockstep/flags/print.h"
#include "lockstep/train/options_recipes.h"

namespace lockstep::app {

flags::Table recipes_table() {
  return {.usage = "lockstep recipes [NAME]",
          .about =
              "Lists the jobs that lockstep train --recipe NAME knows, or prints one: a file of flags, the beginning\n"
              "of one of your own for lockstep train --config FILE.\n",
          .groups = {},
          .prefix = "recipes: ",
          .operands = flags::Operands::some};
}

int recipes_command(const std::vector<std::string>& arguments) {
  const flags::Parsed parsed = flags::parse(recipes_table(), arguments);
  if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
  if (parsed.operands.size() > 1)
    throw UsageError("recipes: one name expected, " + std::to_string(parsed.operands.size()) + " given");
  std::string text;
  if (!parsed.operands.empty()) {
    text = train::find_recipe(parsed.operands.front()).text;
  } else {
    for (const train::Recipe& recipe : train::recipes()) text += recipe.name + "\n    " + recipe.about + "\n";
  }
  return std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? kExitFailure : kExitDone;
}

}  // namespace lockstep::app
