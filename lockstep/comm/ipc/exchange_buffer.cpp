#include "lockstep/comm/ipc/exchange_buffer.h"

#include <ATen/core/TensorBody.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/node.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/comm/device_streams.h"
#include "lockstep/comm/or_abort.h"

namespace lockstep::comm::ipc {

using device::kOutOfMemory;
using device::kPeerAccessAlreadyEnabled;
using device::kWithPeerAccess;
using device::MemoryHandle;

namespace {

constexpr std::size_t kAreaBytes = 2 * ExchangeBuffer::kPieceBytes;

// What a rank tells of its area.
struct Told {
  std::int64_t process = 0;
  std::int64_t gpu = 0;
  std::uintptr_t memory = 0;
  MemoryHandle handle{};
};

// Areas whose groups are gone.
struct Kept {
  decltype(PeerMemory::allocate) by;
  c10::Device place;
  pid_t process;  // a fork's own are others
  void* memory;
};
std::mutex kept_mutex;

std::vector<Kept>& kept() {
  static auto* const areas = new std::vector<Kept>();
  return *areas;
}

void check(const PeerMemory& memory, int error, const std::string& what) {
  if (error == 0) return;
  memory.last_error();  // else libtorch would report it of its next kernel
  throw Error("ipc: " + what + ": " + memory.error_string(error));
}

// Of memory that a peer has shared. A rank that fails says so and takes its memory with it: what a peer then cannot
// open is not the cause.
void check_of_peer(Group& group, const PeerMemory& memory, int error, const std::string& what) {
  if (base::Node* const node = error == 0 ? nullptr : group.shared_node()) node->member.check_abort();
  check(memory, error, what);
}

// What was freed of libtorch's on a device, libtorch keeps, and others get it only when it gives that back.
int new_area(void** area, const PeerMemory& memory, c10::Device device) {
  const int error = memory.allocate(area, kAreaBytes);
  if (error != kOutOfMemory) return error;
  memory.last_error();
  c10::getDeviceAllocator(device.type())->emptyCache();
  return memory.allocate(area, kAreaBytes);
}

void* take_area(const PeerMemory& memory, c10::Device device) {
  {
    const std::lock_guard lock(kept_mutex);
    std::vector<Kept>& areas = kept();
    for (std::size_t i = 0; i < areas.size(); ++i) {
      if (areas[i].by != memory.allocate || areas[i].place != device || areas[i].process != getpid()) continue;
      void* const found = areas[i].memory;
      areas.erase(areas.begin() + std::ptrdiff_t(i));
      return found;
    }
  }
  void* made = nullptr;
  check(memory, new_area(&made, memory, device), std::to_string(kAreaBytes) + " bytes on " + device.str());
  return made;
}

void keep_area(const PeerMemory& memory, c10::Device device, void* area) {
  if (area == nullptr) return;
  const std::lock_guard lock(kept_mutex);
  kept().push_back({memory.allocate, device, getpid(), area});
}

}  // namespace

ExchangeBuffer::ExchangeBuffer(Group& group, const PeerMemory& memory, c10::Device device)
    : memory_(memory), device_(device) {
  try {
    open(group);
  } catch (...) {
    for (void* const area : opened_)
      if (memory_.close_handle(area) != 0) memory_.last_error();
    keep_area(memory_, device_, own_);
    throw;
  }
}

void ExchangeBuffer::open(Group& group) {
  const c10::DeviceGuard here(device_);
  Told mine{.process = getpid(), .gpu = device_.index()};
  or_abort(group, [&] {
    own_ = take_area(memory_, device_);
    mine.memory = reinterpret_cast<std::uintptr_t>(own_);
    check(memory_, memory_.handle_of(&mine.handle, own_), "a handle of memory on " + device_.str());
  });
  const std::string bytes(reinterpret_cast<const char*>(&mine), sizeof mine);
  const std::vector<std::string> all = all_gather_bytes(group, bytes);
  or_abort(group, [&] {
    for (int peer = 0; peer < group.size(); ++peer) {
      Told theirs;
      std::memcpy(&theirs, all[std::size_t(peer)].data(), sizeof theirs);
      void* area = reinterpret_cast<void*>(theirs.memory);
      const std::string whose = "the memory of rank " + std::to_string(peer);
      if (theirs.process != mine.process) {  // a process opens no handle of its own
        check_of_peer(group, memory_, memory_.open_handle(&area, theirs.handle, kWithPeerAccess),
                      whose + " from " + device_.str());
        opened_.push_back(area);
      } else if (theirs.gpu != mine.gpu) {
        const int error = memory_.enable_peer_access(int(theirs.gpu), 0);
        if (error == kPeerAccessAlreadyEnabled)
          memory_.last_error();
        else
          check(memory_, error, whose + " from " + device_.str());
      }
      areas_.push_back(area);
    }
  });
}

// Nobody reads any more when the collectives are done, and where one has failed its result is of no use.
ExchangeBuffer::~ExchangeBuffer() {
  try {
    const c10::DeviceGuard here(device_);
    current_stream(device_).synchronize();
    for (void* const area : opened_)
      if (memory_.close_handle(area) != 0) memory_.last_error();
    keep_area(memory_, device_, own_);
  } catch (const std::exception&) {
    // The device has failed: what it had goes with the process.
  }
}

at::Tensor ExchangeBuffer::part(int rank, int piece, std::size_t first, std::int64_t count,
                                at::ScalarType dtype) const {
  auto* const area = static_cast<std::byte*>(areas_[std::size_t(rank)]) + std::size_t(piece % 2) * kPieceBytes;
  return at::for_blob(area + first, {count})
      .options(at::TensorOptions(dtype).device(device_))
      .target_device(device_)
      .make_tensor();
}

}  // namespace lockstep::comm::ipc
