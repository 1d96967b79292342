#pragma once

// What a program adds, by name.

#include <string>

#include "lockstep/train/additions.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// What the flags must know of `additions` in the program argv[0]. UsageError for a name that is empty, has spaces or
/// commas in it, or is taken, for a model that nothing makes, and for a set that is not one of the two.
OwnNames names_of(const Additions& additions, const std::string& program);

/// The addition of that name; null: there is none.
const OwnModel* find_own_model(const Additions& additions, const std::string& name);
const OwnSet* find_own_set(const Additions& additions, const std::string& name);

}  // namespace lockstep::train
