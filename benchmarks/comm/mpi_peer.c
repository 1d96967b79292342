// Open MPI's and MPICH's contender: MPI_Allreduce in place on memory that has been touched.
// mpi_peer FOLDER NAME [huge]
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "turns.h"

enum { kMostSizes = 32 };
static struct { long elements; float* data; } buffers[kMostSizes];
static int sizes, huge;

static float* buffer(void* self, long elements) {
  (void)self;
  for (int i = 0; i < sizes; ++i)
    if (buffers[i].elements == elements) return buffers[i].data;
  const size_t edge = huge ? (size_t)2 << 20 : 4096;
  const size_t bytes = ((size_t)elements * sizeof(float) + edge - 1) / edge * edge;
  float* data = aligned_alloc(edge, bytes);
  if (data == NULL || sizes == kMostSizes) {
    fprintf(stderr, "bench: out of memory\n");
    exit(1);
  }
  if (huge) madvise(data, bytes, MADV_HUGEPAGE);
  memset(data, 0, bytes);
  buffers[sizes].elements = elements;
  buffers[sizes++].data = data;
  return data;
}

static void all_reduce(void* self, float* data, long elements) {
  (void)self;
  MPI_Allreduce(MPI_IN_PLACE, data, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void barrier(void* self) {
  (void)self;
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  huge = argc > 3 && strcmp(argv[3], "huge") == 0;
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const struct contender contender = {.buffer = buffer, .all_reduce = all_reduce, .barrier = barrier};
  const int status = take_turns(argv[1], argv[2], rank, ranks, &contender);
  MPI_Finalize();
  return status;
}
