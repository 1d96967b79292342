// How ranks of separately started jobs take turns: the same code for every contender, in C so that
// all can use it (turns.c is also a shared library, for Python).
//
// Each rank has two pipes in the folder of the run, NAME.RANK.in and NAME.RANK.out. Between turns it
// sleeps in a read of the first, so that nothing of a contender uses a core while another is measured.
// A turn is the line "elements calls" (elements -1: the barrier); the answer is a line of the
// start and end of each call, in nanoseconds of the machine's monotonic clock.
//
// Before each call the ranks meet at the start line, which is none of the contenders: words in a
// mapped file. The last to arrive sets the moment at which all begin.

#ifndef LOCKSTEP_BENCHMARKS_COMM_TURNS_H
#define LOCKSTEP_BENCHMARKS_COMM_TURNS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct start_line;

/// The start line of a job: the file `path`, which need not exist. NULL with errno set when it cannot be mapped.
struct start_line* start_line_open(const char* path, int rank, int ranks);

/// Returns at the same moment in all ranks, after a rest of at least 0.2 ms in which no rank uses a core.
void start_line_wait(struct start_line* line);

int64_t now_ns(void);

/// What a contender can do. `self` is its own; a call that fails ends the process.
struct contender {
  void* self;
  /// The buffer of that many floats which all_reduce will sum: the same one each time, touched before.
  float* (*buffer)(void* self, long elements);
  void (*all_reduce)(void* self, float* buffer, long elements);
  void (*barrier)(void* self);
};

/// Takes turns until the driver closes the pipe. Every call gets fresh values, which are checked after
/// it. Returns the exit status.
int take_turns(const char* folder, const char* name, int rank, int ranks, const struct contender* contender);

#ifdef __cplusplus
}
#endif

#endif
