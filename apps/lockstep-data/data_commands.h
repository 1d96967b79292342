#pragma once

// The commands of `lockstep data`, with their flags. `lockstep` has them too: it completes them and has their pages.

#include <string>

#include "lockstep/data/fetch/download.h"
#include "lockstep/data/inspect/pictures.h"
#include "lockstep/flags/command.h"

namespace lockstep::app {

struct FetchOptions {
  std::string folder;
  std::string mirror;
  int stall = int(data::Patience{}.stall.count());  ///< seconds
  bool quiet = false;
};

struct InspectOptions {
  data::InspectOptions look;
  bool json = false;
};

flags::Table fetch_table(FetchOptions& options);
flags::Table inspect_table(InspectOptions& options);

/// What the tables of all commands read and write.
struct DataOptions {
  FetchOptions fetch;
  InspectOptions inspect;
};

flags::Command data_commands(DataOptions& options);

}  // namespace lockstep::app
