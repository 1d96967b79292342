#pragma once

// Labels, checked where a sample's number is known.

#include <cstdint>
#include <memory>

#include "lockstep/data/batch.h"

namespace lockstep::train {

/// UsageError that names sample and label unless 0 <= label < classes: the loss leaves out -100 without a word.
/// `purpose`: what the sample is there for, "train" or "evaluate".
void check_label(std::int64_t label, std::int64_t classes, std::int64_t sample, const char* purpose);

/// `set`, to train on, of int64 [B] targets, whose every batch is checked so where it is made: a number less than
/// classes for each sample. A number behind the set's size is a repetition.
std::shared_ptr<const data::Batches> with_checked_labels(std::shared_ptr<const data::Batches> set,
                                                         std::int64_t classes);

}  // namespace lockstep::train
