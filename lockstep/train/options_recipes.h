#pragma once

// Known jobs: each is a file of flags in recipes/, which the program has in it.

#include <string>
#include <vector>

#include "lockstep/flags/flag_file.h"

namespace lockstep::train {

struct Recipe {
  std::string name;
  std::string about;  ///< one line
  std::string text;   ///< the file
};

/// All, by their names.
const std::vector<Recipe>& recipes();

/// UsageError that names the nearest for another one.
const Recipe& find_recipe(const std::string& name);

/// One of the runs of a recipe.
struct RecipeRun {
  std::string method;  ///< what it is called: letters, digits and dashes
  std::string text;    ///< a file of flags: those of the recipe, and its own before them
};

/// The runs of a recipe that is several ("runs": [{"method": "serial", …}, …]); empty: it is one.
std::vector<RecipeRun> runs_of(const Recipe& recipe);

/// The flags that a recipe gives. UsageError when it is several runs.
flags::FlagFile flags_of(const Recipe& recipe);

/// The flags of --config. UsageError when the file cannot be read, is longer than 1 MB, or is no file of flags.
flags::FlagFile read_config(const std::string& path);

}  // namespace lockstep::train
