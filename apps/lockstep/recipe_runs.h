#pragma once

// Recipes of several runs: each is a `lockstep train` of its own, and a table compares them. The trainer knows nothing
// of it.

#include <string>
#include <vector>

#include "lockstep/page/read_run.h"
#include "lockstep/train/options_recipes.h"

namespace lockstep::app {

/// A run that is over, and what it left.
struct MethodResult {
  std::string method;
  page::RunRecord record;
};

/// "method  processes  batch  ms/sample  ratio  s/epoch  top-1", a line for each; the ratio is the speed against the
/// first. "–" where a run did not measure it. Pure.
std::string comparison(const std::vector<MethodResult>& results);

/// The recipe of several runs that the flags of `lockstep train` or the environment name; null: another one, none, or
/// help is asked for.
const train::Recipe* recipe_of_runs(const std::vector<std::string>& arguments);

/// Runs them in turn with the other `arguments`, and prints the table. With --output-dir DIR each has DIR/METHOD.
/// Returns the exit code of the first that fails, which ends it.
int run_recipe(const train::Recipe& recipe, const std::vector<std::string>& arguments);

}  // namespace lockstep::app
