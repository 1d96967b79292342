#pragma once

// Which part of a data set.

namespace lockstep::data {

/// The samples to train on, or those to evaluate on. The two share none.
enum class Split { train, test };

}  // namespace lockstep::data
