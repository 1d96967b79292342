#pragma once

// NCCL's library, found and loaded when a group needs it. Nothing is linked with it.

#include <string>
#include <vector>

#include "lockstep/comm/nccl/nccl_table.h"

namespace lockstep::comm::nccl {

struct Library {
  Table table;
  int version = 0;   ///< 21805: 2.18.5
  std::string path;  ///< by which it was loaded
};

/// "2.18.5".
std::string version_text(int version);

/// Where it is looked for, in this order: the file LOCKSTEP_NCCL (`given`, null: not set) alone; else beside libtorch,
/// whose package brings it (nvidia/nccl/lib), and where the loader looks. Pure.
std::vector<std::string> candidates(const char* given, const std::string& libtorch_folder);

/// Loads the first of them that is there. It stays. UsageError in one line, with what was found and what is needed,
/// when none is there, one lacks a function, or is older than kLeastVersion. Needs no GPU. Thread-safe.
Library load(const std::vector<std::string>& candidates);

/// load() of this process's candidates.
Library load();

}  // namespace lockstep::comm::nccl
