#pragma once

// Where the parts of a set lie that has named ones: what is trained on, and what is evaluated on.

#include <string>

#include "lockstep/train/options.h"

namespace lockstep::train {

/// The part of options.data_path to train on: a folder, or with `ending` (".csv") a file, also packed (".csv.gz").
std::string train_part(const Options& options, const std::string& ending = "");

/// The part to evaluate on: options.val_split, or where that is not given val, or test. UsageError when it is not
/// there.
std::string val_part(const Options& options, const std::string& ending = "");

/// Whether options.data_path is one file, no folder of parts.
bool is_one_file(const Options& options);

}  // namespace lockstep::train
