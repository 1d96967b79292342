#pragma once

// The functions of NCCL that are used, as its library has them: declared here, so that nothing is built against NCCL.
// Numbers and layouts are those of nccl.h, versions 2.14 to 2.28 at least; tests/unit/comm/nccl_header_test.cpp
// compares them with the header where there is one.

#include <climits>
#include <cstddef>

namespace lockstep::comm::nccl {

struct Comm;  ///< what ncclComm_t points to

struct UniqueId {
  char bytes[128];
};

enum class Result : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7
};

enum class DataType : int {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  int64 = 4,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9
};

enum class RedOp : int { sum = 0, product = 1, max = 2, min = 3, mean = 4 };

/// ncclConfig_t as of 2.14, which later versions take, too: what they have behind it keeps its default.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = INT_MIN;  ///< INT_MIN: as by default
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
};

using Stream = void*;  ///< cudaStream_t

struct Table {
  Result (*get_version)(int* version);
  Result (*get_unique_id)(UniqueId* id);
  Result (*comm_init_rank_config)(Comm** comm, int ranks, UniqueId id, int rank, Config* config);
  Result (*comm_finalize)(Comm* comm);
  Result (*comm_destroy)(Comm* comm);
  Result (*comm_abort)(Comm* comm);
  Result (*comm_get_async_error)(Comm* comm, Result* error);
  const char* (*get_error_string)(Result result);
  const char* (*get_last_error)(Comm* comm);
  Result (*all_reduce)(const void* from, void* to, std::size_t count, DataType type, RedOp op, Comm* comm,
                       Stream stream);
  Result (*broadcast)(const void* from, void* to, std::size_t count, DataType type, int root, Comm* comm,
                      Stream stream);
  Result (*all_gather)(const void* from, void* to, std::size_t count_of_each, DataType type, Comm* comm, Stream stream);
  Result (*reduce_scatter)(const void* from, void* to, std::size_t count_of_each, DataType type, RedOp op, Comm* comm,
                           Stream stream);
  Result (*send)(const void* from, std::size_t count, DataType type, int peer, Comm* comm, Stream stream);
  Result (*recv)(void* to, std::size_t count, DataType type, int peer, Comm* comm, Stream stream);
  Result (*group_start)();
  Result (*group_end)();
};

/// The first version that has all of it: communicators that do not block (2.14).
inline constexpr int kLeastVersion = 21400;

}  // namespace lockstep::comm::nccl
