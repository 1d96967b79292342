#pragma once

// What `lockstep doctor` asks a machine: plain data, gathered in one place (gather.h) and judged in another
// (local_checks.h). What could not be read is absent.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// A limit of this process; no number: unlimited.
struct ResourceLimit {
  std::optional<std::uint64_t> soft;
  std::optional<std::uint64_t> hard;
};

struct MemoryFacts {
  struct Space {
    std::uint64_t size = 0;
    std::uint64_t free = 0;
  };
  std::optional<Space> dev_shm;  ///< bytes
  std::optional<ResourceLimit> locked;
  std::optional<std::string> huge_pages;         ///< "madvise"; transparent ones
  std::optional<std::string> shared_huge_pages;  ///< the same for shared memory
  std::optional<Space> control_group;            ///< its limit, and what is left of it; absent: unlimited
  std::vector<std::string> rdma_devices;         ///< of /sys/class/infiniband
};

struct CoreFacts {
  int by_affinity = 1;
  std::optional<double> granted;  ///< by control groups; absent: unlimited
};

/// A process of this user that has to do with a job of ours.
struct JobProcess {
  pid_t pid = 0;
  std::string name;
  std::string segment;              ///< its LOCKSTEP_SEGMENT; empty: it has none
  std::uint64_t segment_bytes = 0;  ///< memory of a segment that it holds open
};

struct Interface {
  std::string name;
  std::string address;
  bool up = true;
  bool loopback = false;
};

/// How this machine's name resolves, and what its addresses are called.
struct NameFacts {
  struct Address {
    std::string address;
    std::string name;  ///< by reverse lookup; empty: none
  };
  std::string host;
  std::string error;  ///< of the resolver; empty: it found addresses
  std::vector<Address> addresses;
};

/// What became of --endpoint.
struct EndpointFacts {
  std::string text;   ///< as typed
  std::string error;  ///< of the resolver, or why there is no way to it; empty: none
  std::string address;
  std::string interface_name;  ///< that has the address or leads to it
  bool local = false;          ///< whether the address is one of this machine's
  int port = 0;                ///< 0: any
  std::string port_error;      ///< why the port cannot be listened at here; empty: it can
};

struct ClockFacts {
  std::optional<std::string> source;  ///< "tsc"
  bool synchronized = true;
};

struct GpuFacts {
  std::optional<std::string> driver;  ///< its version; absent: none is loaded
  int cards = 0;                      ///< that the driver has
  int devices = 0;                    ///< /dev/nvidia0 ... that can be opened here
  std::string unusable;               ///< why CUDA has none here; empty: it has, or there is none to be had
  std::string peers;                  ///< which read each other's memory, in words; empty: there are no two
};

struct VersionFacts {
  std::string lockstep;
  std::string commit;  ///< empty: not built in a git repository
  std::string kernel;
  std::string processor;  ///< instruction sets that decide which kernels run
  std::string libtorch;   ///< empty: `libtorch_error` says why
  std::string cuda;       ///< for which its CUDA part is, or why there is none
  std::string nccl;       ///< the version of NCCL beside it, or that there is none
  std::string libtorch_error;
};

struct LocalFacts {
  VersionFacts versions;
  MemoryFacts memory;
  CoreFacts cores;
  std::optional<ResourceLimit> files;
  std::vector<JobProcess> processes;
  std::vector<std::string> log_folders;  ///< that `lockstep run` made in the folder for temporary files
  std::vector<Interface> interfaces;
  NameFacts name;
  std::optional<EndpointFacts> endpoint;
  ClockFacts clock;
  GpuFacts gpus;
};

}  // namespace lockstep::launch
