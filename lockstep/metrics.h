#pragma once

// What a run writes: events, and the files and lines that they become.

#include "lockstep/metrics/csv.h"
#include "lockstep/metrics/event.h"
#include "lockstep/metrics/jsonl.h"
#include "lockstep/metrics/progress.h"
#include "lockstep/metrics/report.h"
#include "lockstep/metrics/run_directory.h"
#include "lockstep/metrics/run_files.h"
#include "lockstep/metrics/sink.h"
#include "lockstep/metrics/summary.h"
#include "lockstep/metrics/tensorboard.h"
