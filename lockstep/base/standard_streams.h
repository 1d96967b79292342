#pragma once

namespace lockstep::base {

/// Opens /dev/null for each of stdin, stdout and stderr that is closed. Call it first in main():
/// otherwise the next file opened gets that number, and what is printed goes into it, be it
/// the segment. Throws Error when /dev/null cannot be opened.
void open_standard_streams();

}  // namespace lockstep::base
