#pragma once

// What a folder or file holds, for a person who is about to train on it.

#include <string>

#include "lockstep/data/inspect/pictures.h"
#include "lockstep/data/inspect/report.h"

namespace lockstep::data {

/// Recognises, in this order: the files of the known sets (sets/known_sets.h), in the order of their rows, each where
/// its reader looks for them; a folder per class as ImageFolder reads it, or such folders in a folder train with val or
/// test beside it; a single JPEG, PNG, IDX or CIFAR-10 file. Damage becomes a fault of the report. UsageError when
/// `path` is none of these.
Report inspect(const std::string& path, const InspectOptions& options = {});

}  // namespace lockstep::data
