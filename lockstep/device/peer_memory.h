#pragma once

// Memory of a device that several processes have mapped: CUDA's functions for it, called by name as those of
// cuda_runtime.h are.

#include <cstddef>

namespace lockstep::device {

/// cudaIpcMemHandle_t: what another process opens the memory by.
struct MemoryHandle {
  char bytes[64];
};

/// Each returns an error number, 0 for done, but error_string; on the current device.
struct PeerMemory {
  int (*allocate)(void** memory, std::size_t bytes);
  int (*handle_of)(MemoryHandle* handle, void* memory);
  int (*open_handle)(void** memory, MemoryHandle handle, unsigned flags);
  int (*close_handle)(void* memory);
  int (*enable_peer_access)(int device, unsigned flags);
  int (*last_error)();
  const char* (*error_string)(int error);
};

/// Of PeerMemory::open_handle, whose only one it is: lets devices reach each other's memory.
inline constexpr unsigned kWithPeerAccess = 1;
/// What PeerMemory::allocate says where the device has too little left.
inline constexpr int kOutOfMemory = 2;
/// What PeerMemory::enable_peer_access says where it has been done: no failure.
inline constexpr int kPeerAccessAlreadyEnabled = 704;

/// nullptr where the process has no libcudart. Looked up once. Thread-safe.
const PeerMemory* cuda_peer_memory();

}  // namespace lockstep::device
