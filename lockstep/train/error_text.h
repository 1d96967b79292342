#pragma once

// What a rank says of the error that ends it.

#include <exception>
#include <string>

namespace lockstep::train {

/// One line, whatever the names in it. Of a GPU's memory that is used up: what was asked for and what is free. Pure,
/// thread-safe.
std::string error_text(const std::exception& error);

}  // namespace lockstep::train
