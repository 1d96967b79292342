#pragma once

// How a worker tells its launcher why it failed: the file that TORCHELASTIC_ERROR_FILE names, in
// torchelastic's JSON. torchrun quotes it in its report, and so does our agent.
//
//   {"message": {"message": "<cause>", "extraInfo": {"timestamp": "<seconds since the epoch>",
//    "py_callstack": "<cause>", "rank": 1, "step": 12, "phase": "forward"}}}

#include <cstdint>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {

/// The text of the file. Pure. Bytes that are not UTF-8 become U+FFFD.
std::string error_file_text(const Failure& failure, std::int64_t seconds_since_epoch);

/// Writes the file, over what it held; nothing when the variable is not set. The path is written
/// in place: a launcher may name a descriptor of its own (`/proc/<pid>/fd/<n>`). Never throws and
/// never waits for a reader, for nothing here may hide the failure itself. What cannot be
/// written whole is taken back, because torchrun stops at half a file.
void write_error_file(const Failure& failure) noexcept;

}  // namespace lockstep::rendezvous
