#define _GNU_SOURCE  // NOLINT(bugprone-reserved-identifier)
#include "turns.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { kMostRanks = 64, kLine = 64, kMostCalls = 4096, kMostSeconds = 600 };

// Nanoseconds: between looks for the others, from the last one's arrival to the start, awake before the start.
enum { kDoze = 50000, kRest = 300000, kAwake = 100000 };

// One rank's arrival. Two are used in turn: whoever has left a meeting may arrive at the next before
// a slow one has read the words of this one.
struct arrival {
  int64_t when;
  uint64_t round;
  char rest[kLine - 16];
};

struct start_line {
  struct arrival (*arrivals)[kMostRanks];
  uint64_t round;
  int rank, ranks, crowded;
};

int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

struct start_line* start_line_open(const char* path, int rank, int ranks) {
  const size_t bytes = 2 * sizeof(struct arrival[kMostRanks]);
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) return NULL;
  void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  struct start_line* line = memory == MAP_FAILED ? NULL : malloc(sizeof *line);
  if (line == NULL) return NULL;
  prctl(PR_SET_TIMERSLACK, 1);  // nanoseconds; the default is 50 us
  const int crowded = ranks > sysconf(_SC_NPROCESSORS_ONLN);
  *line = (struct start_line){.arrivals = memory, .rank = rank, .ranks = ranks, .crowded = crowded};
  return line;
}

static void sleep_until(int64_t until) {
  const struct timespec time = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

// Asleep, for a core that spins here is none that a contender's own threads can wake up on: Gloo's waited for the end of
// a time slice then, and its call for 64 KiB lasted milliseconds instead of 0.2. Only the last stretch is spent awake, for
// a timer's lateness (tens of microseconds in a virtual machine) would be counted as the collective's; in yields where
// ranks share cores.
void start_line_wait(struct start_line* line) {
  struct arrival* all = line->arrivals[++line->round % 2];
  all[line->rank].when = now_ns();
  __atomic_store_n(&all[line->rank].round, line->round, __ATOMIC_RELEASE);
  int64_t last = 0;
  for (int rank = 0; rank < line->ranks; ++rank) {
    while (__atomic_load_n(&all[rank].round, __ATOMIC_ACQUIRE) != line->round) sleep_until(now_ns() + kDoze);
    if (all[rank].when > last) last = all[rank].when;
  }
  const int64_t start = last + kRest;  // long enough that all have seen the last arrival
  sleep_until(start - kAwake);
  while (now_ns() < start) {
    if (line->crowded) sched_yield();
    else __builtin_ia32_pause();
  }
}

static FILE* open_pipe(const char* folder, const char* name, int rank, const char* side, const char* mode) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s.%d.%s", folder, name, rank, side);
  FILE* file = fopen(path, mode);
  if (file == NULL) perror(path);
  return file;
}

static float value_of(int call, int rank) { return (float)(1 + (call * 7 + rank * 3) % 16); }

static float sum_of(int call, int ranks) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value_of(call, rank);
  return sum;
}

static void all_reduce_once(const struct contender* who, struct start_line* line, long elements, int call,
                            int64_t* times) {
  float* data = who->buffer(who->self, elements);
  const float mine = value_of(call, line->rank);
  for (long i = 0; i < elements; ++i) data[i] = mine;
  start_line_wait(line);
  times[0] = now_ns();
  who->all_reduce(who->self, data, elements);
  times[1] = now_ns();
  const float sum = sum_of(call, line->ranks);
  for (long i = 0; i < elements; i += 1 + elements / 61)
    if (data[i] != sum) {
      fprintf(stderr, "bench: element %ld of %ld is %g, not %g\n", i, elements, data[i], sum);
      exit(1);
    }
}

static void barrier_once(const struct contender* who, struct start_line* line, int64_t* times) {
  start_line_wait(line);
  times[0] = now_ns();
  who->barrier(who->self);
  times[1] = now_ns();
}

int take_turns(const char* folder, const char* name, int rank, int ranks, const struct contender* contender) {
  static int64_t times[2 * kMostCalls];
  alarm(kMostSeconds);  // nobody waits for ever, whatever happens to the others
  char path[512];
  snprintf(path, sizeof path, "%s/%s.line", folder, name);
  struct start_line* line = start_line_open(path, rank, ranks);
  FILE* in = open_pipe(folder, name, rank, "in", "r");
  FILE* out = open_pipe(folder, name, rank, "out", "w");
  if (line == NULL || in == NULL || out == NULL) return 1;
  fprintf(out, "ready\n");
  fflush(out);
  long elements = 0;
  int calls = 0;
  int call_number = 0;
  while (fscanf(in, "%ld %d", &elements, &calls) == 2 && calls <= kMostCalls) {
    for (int call = 0; call < calls; ++call) {
      if (elements < 0) barrier_once(contender, line, times + 2 * call);
      else all_reduce_once(contender, line, elements, call_number++, times + 2 * call);
    }
    for (int i = 0; i < 2 * calls; ++i) fprintf(out, "%lld ", (long long)times[i]);
    fprintf(out, "\n");
    fflush(out);
  }
  return 0;
}
