#pragma once

// The input of a regression: sets whose samples are rows of numbers (data::holds_numbers).

#include <cstdint>

#include "lockstep/data/set_fingerprint.h"
#include "lockstep/data/tensor_batches.h"
#include "lockstep/train/input.h"

namespace lockstep::train {

/// Of options.dataset, with the samples to evaluate on when the run `evaluates`. Every rank holds all rows; which of
/// them make a shard of a step is the loader's affair, and no matter of ranks. Rows are [1, 1, features], as pictures
/// of one line; targets [targets]. UsageError "file:line: ..." for a field that is no number; for columns that are not
/// there; when the parts differ in their columns; when nothing is left to train or evaluate on.
Input make_number_input(const Options& options, bool evaluates);

/// Whether row `row` is one of the `fraction` that is evaluated on: they are spread evenly over the file. Pure.
bool is_held_out(std::int64_t row, double fraction);

}  // namespace lockstep::train
