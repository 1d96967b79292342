#pragma once

// Runs as one page of HTML that needs nothing from elsewhere. Pure function.

#include <string>
#include <vector>

#include "lockstep/page/read_run.h"

namespace lockstep::page {

/// A table of the runs, a chart of each number that one of them has told, with a curve for each, what failed and was
/// started again, and where the time of the steps went. Light or dark as the reader's system is, one column on a phone.
/// At least one run.
std::string html(const std::vector<RunRecord>& runs);

}  // namespace lockstep::page
