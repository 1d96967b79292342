// A stand-in for NCCL's library, for ranks that are threads of one process, over the stand-in for a device, whose
// memory is the host's. As NCCL with communicators that do not block, it takes a call and says "in progress" until all
// ranks have made theirs. Streams are not looked at: by the time a call is done, so is its work.
//
// Faults, by the environment when a communicator is made:
//   NCCL_STAND_IN_ERROR=r:n   the n-th call of rank r is an error that comes later
//   NCCL_STAND_IN_WORDS=...   what is said of it

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/small_float.h"
#include "lockstep/comm/nccl/nccl_table.h"

using lockstep::comm::nccl::Config;
using lockstep::comm::nccl::DataType;
using lockstep::comm::nccl::RedOp;
using lockstep::comm::nccl::Result;
using lockstep::comm::nccl::Stream;
using lockstep::comm::nccl::UniqueId;

namespace {

// One rank's part of a collective.
struct Part {
  std::string name;  // with what all ranks have to agree in
  const void* from = nullptr;
  void* to = nullptr;
};

struct Meeting;
using Work = void (*)(Meeting& meeting);

// What all ranks do together.
struct Meeting {
  std::vector<Part> parts;
  int arrived = 0;
  bool done = false;
  bool wrong = false;
  std::size_t count = 0;
  DataType type = DataType::uint8;
  RedOp op = RedOp::sum;
  int root = 0;
};

struct World {
  std::mutex mutex;
  int ranks = 0;
  int joined = 0;
  bool broken = false;                                         // a rank has aborted: what others have given may be gone
  std::map<std::uint64_t, std::shared_ptr<Meeting>> meetings;  // by number
};

std::mutex worlds_mutex;
std::map<std::string, std::shared_ptr<World>> worlds;  // by id
int ids = 0;

std::size_t width_of(DataType type) {
  switch (type) {
    case DataType::int8:
    case DataType::uint8:
      return 1;
    case DataType::float16:
    case DataType::bfloat16:
      return 2;
    case DataType::int32:
    case DataType::float32:
      return 4;
    default:
      return 8;
  }
}

double read(const void* from, DataType type, std::size_t i) {
  switch (type) {
    case DataType::int8:
      return static_cast<const std::int8_t*>(from)[i];
    case DataType::uint8:
      return static_cast<const std::uint8_t*>(from)[i];
    case DataType::int32:
      return static_cast<const std::int32_t*>(from)[i];
    case DataType::int64:
      return double(static_cast<const std::int64_t*>(from)[i]);
    case DataType::float16:
      return lockstep::base::from_half(static_cast<const std::uint16_t*>(from)[i]);
    case DataType::bfloat16:
      return lockstep::base::from_bfloat16(static_cast<const std::uint16_t*>(from)[i]);
    case DataType::float32:
      return double(static_cast<const float*>(from)[i]);
    default:
      return static_cast<const double*>(from)[i];
  }
}

void write(void* to, DataType type, std::size_t i, double value) {
  switch (type) {
    case DataType::int8:
      static_cast<std::int8_t*>(to)[i] = std::int8_t(value);
      return;
    case DataType::uint8:
      static_cast<std::uint8_t*>(to)[i] = std::uint8_t(value);
      return;
    case DataType::int32:
      static_cast<std::int32_t*>(to)[i] = std::int32_t(value);
      return;
    case DataType::int64:
      static_cast<std::int64_t*>(to)[i] = std::int64_t(value);
      return;
    case DataType::float16:
      static_cast<std::uint16_t*>(to)[i] = lockstep::base::to_half(value);
      return;
    case DataType::bfloat16:
      static_cast<std::uint16_t*>(to)[i] = lockstep::base::to_bfloat16(value);
      return;
    case DataType::float32:
      static_cast<float*>(to)[i] = float(value);
      return;
    default:
      static_cast<double*>(to)[i] = value;
  }
}

double combined(RedOp op, double a, double b) {
  switch (op) {
    case RedOp::max:
      return std::max(a, b);
    case RedOp::min:
      return std::min(a, b);
    case RedOp::product:
      return a * b;
    default:
      return a + b;
  }
}

// Of `count` elements from `first` on.
std::vector<char> reduced(const Meeting& meeting, std::size_t first) {
  std::vector<char> result(meeting.count * width_of(meeting.type));
  for (std::size_t i = 0; i < meeting.count; ++i) {
    double all = read(meeting.parts[0].from, meeting.type, first + i);
    for (std::size_t rank = 1; rank < meeting.parts.size(); ++rank)
      all = combined(meeting.op, all, read(meeting.parts[rank].from, meeting.type, first + i));
    write(result.data(), meeting.type, i, meeting.op == RedOp::mean ? all / double(meeting.parts.size()) : all);
  }
  return result;
}

void do_all_reduce(Meeting& meeting) {
  const std::vector<char> result = reduced(meeting, 0);
  for (const Part& part : meeting.parts) std::memcpy(part.to, result.data(), result.size());
}

void do_reduce_scatter(Meeting& meeting) {
  std::vector<std::vector<char>> results;
  for (std::size_t rank = 0; rank < meeting.parts.size(); ++rank)
    results.push_back(reduced(meeting, rank * meeting.count));
  for (std::size_t rank = 0; rank < meeting.parts.size(); ++rank)
    std::memcpy(meeting.parts[rank].to, results[rank].data(), results[rank].size());
}

void do_broadcast(Meeting& meeting) {
  const std::size_t bytes = meeting.count * width_of(meeting.type);
  const void* const from = meeting.parts[std::size_t(meeting.root)].from;
  for (const Part& part : meeting.parts)
    if (part.to != from) std::memcpy(part.to, from, bytes);
}

void do_all_gather(Meeting& meeting) {
  const std::size_t bytes = meeting.count * width_of(meeting.type);
  for (const Part& part : meeting.parts)
    for (std::size_t rank = 0; rank < meeting.parts.size(); ++rank)
      std::memmove(static_cast<char*>(part.to) + rank * bytes, meeting.parts[rank].from, bytes);
}

// Of a group of sends and receives, in which each rank has one of either for each.
struct Ends {
  std::vector<const void*> sent;
  std::vector<void*> received;
};

void do_exchange(Meeting& meeting) {
  const std::size_t bytes = meeting.count * width_of(meeting.type);
  for (std::size_t to = 0; to < meeting.parts.size(); ++to)
    for (std::size_t from = 0; from < meeting.parts.size(); ++from)
      std::memcpy(static_cast<Ends*>(meeting.parts[to].to)->received[from],
                  static_cast<Ends*>(meeting.parts[from].to)->sent[to], bytes);
}

}  // namespace

namespace lockstep::comm::nccl {

struct Comm {
  std::shared_ptr<World> world;
  int rank = 0;
  std::uint64_t calls = 0;
  std::uint64_t fails_at = 0;
  std::shared_ptr<Meeting> under_way;
  Ends ends;
  bool finalized = false;
};

}  // namespace lockstep::comm::nccl

using lockstep::comm::nccl::Comm;

namespace {

thread_local int group_depth = 0;
thread_local Comm* group_comm = nullptr;
thread_local std::size_t group_count = 0;

Result meet(Comm* comm, Part part, std::size_t count, DataType type, RedOp op, int root, Work work) {
  World& world = *comm->world;
  const std::lock_guard lock(world.mutex);
  const std::uint64_t number = ++comm->calls;
  std::shared_ptr<Meeting>& meeting = world.meetings[number];
  if (meeting == nullptr) {
    meeting = std::make_shared<Meeting>();
    meeting->parts.resize(std::size_t(world.ranks));
    meeting->count = count;
    meeting->type = type;
    meeting->op = op;
    meeting->root = root;
  }
  if (comm->fails_at == number || world.broken) meeting->wrong = true;
  comm->under_way = meeting;
  meeting->parts[std::size_t(comm->rank)] = std::move(part);
  if (++meeting->arrived < world.ranks) return Result::in_progress;
  const bool agree = std::all_of(meeting->parts.begin(), meeting->parts.end(),
                                 [&](const Part& one) { return one.name == meeting->parts[0].name; });
  meeting->wrong = meeting->wrong || !agree;
  if (!meeting->wrong) work(*meeting);
  meeting->done = true;
  world.meetings.erase(number);
  return Result::in_progress;
}

std::string name_of(const char* collective, std::size_t count, DataType type) {
  return std::string(collective) + " " + std::to_string(count) + " " + std::to_string(int(type));
}

}  // namespace

extern "C" {

Result ncclGetVersion(int* version) {
  const char* const told = std::getenv("NCCL_STAND_IN_VERSION");
  *version = told != nullptr ? std::atoi(told) : 21400;
  return Result::success;
}

Result ncclGetUniqueId(UniqueId* id) {
  const std::lock_guard lock(worlds_mutex);
  std::memset(id->bytes, 0, sizeof id->bytes);
  const std::string name = "stand-in " + std::to_string(++ids);
  std::memcpy(id->bytes, name.data(), name.size());
  return Result::success;
}

Result ncclCommInitRankConfig(Comm** comm, int ranks, UniqueId id, int rank, Config* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) return Result::invalid_argument;
  const std::lock_guard lock(worlds_mutex);
  std::shared_ptr<World>& world = worlds[id.bytes];
  if (world == nullptr) {
    world = std::make_shared<World>();
    world->ranks = ranks;
  }
  auto* const made = new Comm;
  made->world = world;
  made->rank = rank;
  if (const char* const fault = std::getenv("NCCL_STAND_IN_ERROR")) {
    const std::string text = fault;
    const std::size_t colon = text.find(':');
    if (std::stoi(text.substr(0, colon)) == rank) made->fails_at = std::stoull(text.substr(colon + 1));
  }
  const std::lock_guard inner(world->mutex);
  ++world->joined;
  *comm = made;
  return Result::in_progress;
}

Result ncclCommFinalize(Comm* comm) {
  comm->finalized = true;
  return Result::success;
}

Result ncclCommDestroy(Comm* comm) {
  const bool finalized = comm->finalized;
  delete comm;
  return finalized ? Result::success : Result::invalid_usage;
}

Result ncclCommAbort(Comm* comm) {
  const std::shared_ptr<World> world = comm->world;
  const std::lock_guard lock(world->mutex);
  world->broken = true;
  for (auto& [number, meeting] : world->meetings) meeting->wrong = true;
  delete comm;
  return Result::success;
}

Result ncclCommGetAsyncError(Comm* comm, Result* error) {
  const std::lock_guard lock(comm->world->mutex);
  *error = Result::success;
  if (comm->world->joined < comm->world->ranks)
    *error = Result::in_progress;
  else if (comm->under_way != nullptr)
    *error = comm->under_way->wrong  ? Result::remote_error
             : comm->under_way->done ? Result::success
                                     : Result::in_progress;
  return Result::success;
}

const char* ncclGetErrorString(Result result) {
  switch (result) {
    case Result::success:
      return "no error";
    case Result::remote_error:
      return "remote process exited or there was a network error";
    case Result::invalid_argument:
      return "invalid argument";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(Comm*) {
  const char* const told = std::getenv("NCCL_STAND_IN_WORDS");
  return told != nullptr ? told : "the stand-in was told to fail";
}

Result ncclAllReduce(const void* from, void* to, std::size_t count, DataType type, RedOp op, Comm* comm, Stream) {
  return meet(comm, {name_of("all_reduce", count, type) + std::to_string(int(op)), from, to}, count, type, op, 0,
              do_all_reduce);
}

Result ncclBroadcast(const void* from, void* to, std::size_t count, DataType type, int root, Comm* comm, Stream) {
  return meet(comm, {name_of("broadcast", count, type) + std::to_string(root), from, to}, count, type, RedOp::sum, root,
              do_broadcast);
}

Result ncclAllGather(const void* from, void* to, std::size_t count, DataType type, Comm* comm, Stream) {
  return meet(comm, {name_of("all_gather", count, type), from, to}, count, type, RedOp::sum, 0, do_all_gather);
}

Result ncclReduceScatter(const void* from, void* to, std::size_t count, DataType type, RedOp op, Comm* comm, Stream) {
  return meet(comm, {name_of("reduce_scatter", count, type) + std::to_string(int(op)), from, to}, count, type, op, 0,
              do_reduce_scatter);
}

Result ncclGroupStart() {
  if (group_depth++ == 0) group_comm = nullptr;
  return Result::success;
}

Result ncclSend(const void* from, std::size_t count, DataType type, int peer, Comm* comm, Stream) {
  if (group_depth == 0 || type != DataType::uint8) return Result::invalid_usage;
  group_comm = comm;
  group_count = count;
  comm->ends.sent.resize(std::size_t(comm->world->ranks));
  comm->ends.sent[std::size_t(peer)] = from;
  return Result::success;
}

Result ncclRecv(void* to, std::size_t count, DataType type, int peer, Comm* comm, Stream) {
  if (group_depth == 0 || type != DataType::uint8) return Result::invalid_usage;
  group_comm = comm;
  group_count = count;
  comm->ends.received.resize(std::size_t(comm->world->ranks));
  comm->ends.received[std::size_t(peer)] = to;
  return Result::success;
}

Result ncclGroupEnd() {
  if (--group_depth > 0 || group_comm == nullptr) return Result::success;
  return meet(group_comm, {name_of("exchange", group_count, DataType::uint8), nullptr, &group_comm->ends}, group_count,
              DataType::uint8, RedOp::sum, 0, do_exchange);
}

}  // extern "C"
