#pragma once

// What a classifier took for what, as HTML. Pure functions.

#include <string>

#include "lockstep/page/read_run.h"

namespace lockstep::page {

/// The confusion matrix as SVG: a row for each class, a column for what its samples were taken for, a square the darker
/// the greater its share of the row. Each square that is not empty says in data-truth, data-prediction and data-count
/// what it stands for. Empty when there is no count.
std::string confusion_svg(const Answers& answers, const std::string& title);

/// A table of the classes with how many of their samples were taken for what they are, the worst first; empty when no
/// class has any.
std::string classes_table(const Answers& answers);

/// A table of the mistakes, with their pictures where there are some; empty when there is none.
std::string mistakes_table(const Answers& answers);

}  // namespace lockstep::page
