// Our declarations of NCCL's functions beside its header.

#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "lockstep/comm/nccl/nccl_table.h"

namespace lockstep::comm::nccl {
namespace {

// A type of theirs as ours: what is passed alike.
template <class T>
struct Ours {
  using type = T;
};
template <>
struct Ours<ncclResult_t> {
  using type = Result;
};
template <>
struct Ours<ncclDataType_t> {
  using type = DataType;
};
template <>
struct Ours<ncclRedOp_t> {
  using type = RedOp;
};
template <>
struct Ours<ncclUniqueId> {
  using type = UniqueId;
};
template <>
struct Ours<ncclUniqueId*> {
  using type = UniqueId*;
};
template <>
struct Ours<ncclResult_t*> {
  using type = Result*;
};
template <>
struct Ours<ncclComm_t> {
  using type = Comm*;
};
template <>
struct Ours<ncclComm_t*> {
  using type = Comm**;
};
template <>
struct Ours<ncclConfig_t*> {
  using type = Config*;
};
template <>
struct Ours<cudaStream_t> {
  using type = Stream;
};

template <class Theirs, class Mine>
constexpr bool is_same = false;
template <class R, class... Args, class Mine>
constexpr bool is_same<R (*)(Args...), Mine> =
    std::is_same_v<typename Ours<R>::type (*)(typename Ours<Args>::type...), Mine>;

#define EXPECT_AS_DECLARED(function, member) EXPECT_TRUE((is_same<decltype(&function), decltype(Table::member)>))

TEST(NcclTable, HasTheFunctionsOfTheHeader) {
  EXPECT_AS_DECLARED(ncclGetVersion, get_version);
  EXPECT_AS_DECLARED(ncclGetUniqueId, get_unique_id);
  EXPECT_AS_DECLARED(ncclCommInitRankConfig, comm_init_rank_config);
  EXPECT_AS_DECLARED(ncclCommFinalize, comm_finalize);
  EXPECT_AS_DECLARED(ncclCommDestroy, comm_destroy);
  EXPECT_AS_DECLARED(ncclCommAbort, comm_abort);
  EXPECT_AS_DECLARED(ncclCommGetAsyncError, comm_get_async_error);
  EXPECT_AS_DECLARED(ncclGetErrorString, get_error_string);
  EXPECT_AS_DECLARED(ncclGetLastError, get_last_error);
  EXPECT_AS_DECLARED(ncclAllReduce, all_reduce);
  EXPECT_AS_DECLARED(ncclBroadcast, broadcast);
  EXPECT_AS_DECLARED(ncclAllGather, all_gather);
  EXPECT_AS_DECLARED(ncclReduceScatter, reduce_scatter);
  EXPECT_AS_DECLARED(ncclSend, send);
  EXPECT_AS_DECLARED(ncclRecv, recv);
  EXPECT_AS_DECLARED(ncclGroupStart, group_start);
  EXPECT_AS_DECLARED(ncclGroupEnd, group_end);
}

TEST(NcclTable, HasTheNumbersOfTheHeader) {
  EXPECT_EQ(int(Result::unhandled_cuda_error), int(ncclUnhandledCudaError));
  EXPECT_EQ(int(Result::remote_error), int(ncclRemoteError));
  EXPECT_EQ(int(Result::in_progress), int(ncclInProgress));
  EXPECT_EQ(int(DataType::int8), int(ncclInt8));
  EXPECT_EQ(int(DataType::uint8), int(ncclUint8));
  EXPECT_EQ(int(DataType::int32), int(ncclInt32));
  EXPECT_EQ(int(DataType::int64), int(ncclInt64));
  EXPECT_EQ(int(DataType::float16), int(ncclFloat16));
  EXPECT_EQ(int(DataType::float32), int(ncclFloat32));
  EXPECT_EQ(int(DataType::float64), int(ncclFloat64));
  EXPECT_EQ(int(DataType::bfloat16), int(ncclBfloat16));
  EXPECT_EQ(int(RedOp::sum), int(ncclSum));
  EXPECT_EQ(int(RedOp::product), int(ncclProd));
  EXPECT_EQ(int(RedOp::max), int(ncclMax));
  EXPECT_EQ(int(RedOp::min), int(ncclMin));
  EXPECT_EQ(int(RedOp::mean), int(ncclAvg));
}

TEST(NcclTable, HasTheBeginningOfTheHeadersConfig) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const Config ours;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_LE(ours.size, theirs.size);
  EXPECT_EQ(ours.blocking, theirs.blocking);
  EXPECT_EQ(offsetof(Config, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(Config, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_EQ(offsetof(Config, max_ctas), offsetof(ncclConfig_t, maxCTAs));
  EXPECT_EQ(offsetof(Config, net_name), offsetof(ncclConfig_t, netName));
}

}  // namespace
}  // namespace lockstep::comm::nccl
