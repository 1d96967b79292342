#pragma once

#include <cstddef>
#include <string>

namespace lockstep::flags {

/// A help text for a terminal of so many columns; 0: as it is. Lines that fit stay as they are. Of a row of a list the
/// text goes on below itself, behind the names; where that leaves too little room it begins on a line of its own. Lines
/// without an indent that follow one another are one paragraph; it is filled anew when one of them is too long. Words
/// stay whole, but for the names of a choice, "mlp|convnet": a line may end behind a stroke. Pure; one byte is one
/// column.
std::string wrapped(const std::string& text, std::size_t columns);

}  // namespace lockstep::flags
