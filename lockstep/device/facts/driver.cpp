#include "lockstep/device/facts/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "lockstep/base/text.h"
#include "lockstep/device/facts/numa.h"

namespace lockstep::device {
namespace {

// A library of the driver, which stays loaded: its threads and its memory end with the process.
class Library {
 public:
  explicit Library(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) error_ = dlerror();
  }
  bool opened() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }

  template <class Function>
  bool find(const char* name, Function& function) const {
    function = handle_ != nullptr ? reinterpret_cast<Function>(dlsym(handle_, name)) : nullptr;
    return function != nullptr;
  }

 private:
  void* handle_;
  std::string error_;
};

// Of cuda.h, whose numbers and types have stayed since 2012.
struct Driver {
  int (*init)(unsigned flags);
  int (*version)(int* version);
  int (*error_string)(int error, const char** text);
  int (*count)(int* count);
  int (*device)(int* device, int index);
  int (*name)(char* name, int length, int device);
  int (*total)(std::size_t* bytes, int device);
  int (*pci_id)(char* id, int length, int device);
  int (*attribute)(int* value, int which, int device);
  int (*can_access_peer)(int* can, int device, int peer);

  bool find(const Library& library) {
    return library.find("cuInit", init) && library.find("cuDriverGetVersion", version) &&
           library.find("cuGetErrorString", error_string) && library.find("cuDeviceGetCount", count) &&
           library.find("cuDeviceGet", device) && library.find("cuDeviceGetName", name) &&
           library.find("cuDeviceTotalMem_v2", total) && library.find("cuDeviceGetPCIBusId", pci_id) &&
           library.find("cuDeviceGetAttribute", attribute) && library.find("cuDeviceCanAccessPeer", can_access_peer);
  }
  std::string words(int error) const {
    const char* text = nullptr;
    return error_string(error, &text) == 0 && text != nullptr ? base::shown(text) : "error " + std::to_string(error);
  }
};
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;

// Of nvml.h.
struct Management {
  struct Memory {
    unsigned long long total, free, used;
  };
  int (*init)();
  int (*shutdown)();
  int (*version)(char* text, unsigned length);
  int (*device)(const char* pci_id, void** device);
  int (*memory)(void* device, Memory* memory);

  bool find(const Library& library) {
    return library.find("nvmlInit_v2", init) && library.find("nvmlShutdown", shutdown) &&
           library.find("nvmlSystemGetDriverVersion", version) &&
           library.find("nvmlDeviceGetHandleByPciBusId_v2", device) && library.find("nvmlDeviceGetMemoryInfo", memory);
  }
};

// What only the management library knows.
void add_of_management(const std::string& name, DriverReport& report) {
  const Library library(name);
  Management management{};
  if (!management.find(library) || management.init() != 0) return;
  char text[128] = {};
  if (management.version(text, sizeof text) == 0) report.version = base::shown(text);
  for (Gpu& gpu : report.gpus) {
    void* device = nullptr;
    Management::Memory memory{};
    if (management.device(gpu.pci_id.c_str(), &device) == 0 && management.memory(device, &memory) == 0)
      gpu.free = memory.free;
  }
  management.shutdown();
}

Gpu ask_gpu(const Driver& driver, int device) {
  Gpu gpu;
  char text[256] = {};
  if (driver.name(text, sizeof text, device) == 0) gpu.name = base::shown(text);
  char id[32] = {};
  if (driver.pci_id(id, sizeof id, device) == 0) gpu.pci_id = base::shown(id);
  std::size_t total = 0;
  if (driver.total(&total, device) == 0) gpu.total = total;
  driver.attribute(&gpu.compute_major, kComputeMajor, device);
  driver.attribute(&gpu.compute_minor, kComputeMinor, device);
  gpu.numa_node = numa_node_of(gpu.pci_id);
  return gpu;
}

}  // namespace

std::string why_no_driver(const DriverLibraries& libraries) {
  // Closed again: a launcher needs it for nothing else.
  void* const library = dlopen(libraries.cuda.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return base::shown(dlerror());
  dlclose(library);
  return "";
}

DriverReport ask_driver(const DriverLibraries& libraries) {
  DriverReport report;
  const Library library(libraries.cuda);
  Driver driver{};
  if (!library.opened()) {
    report.none = "the NVIDIA driver is not there: " + base::shown(library.error());
    return report;
  }
  if (!driver.find(library)) {
    report.none = "the NVIDIA driver is not whole: " + libraries.cuda + " lacks functions of CUDA 11";
    return report;
  }
  driver.version(&report.cuda);
  int count = 0;
  int error = driver.init(0);
  if (error == 0) error = driver.count(&count);
  std::vector<int> devices(std::size_t(std::max(count, 0)));
  for (int i = 0; i < count && error == 0; ++i) error = driver.device(&devices[std::size_t(i)], i);
  if (error != 0) {
    report.none = "the NVIDIA driver says: " + driver.words(error);
    return report;
  }
  if (count == 0) report.none = "the NVIDIA driver shows no GPU";
  for (int device : devices) report.gpus.push_back(ask_gpu(driver, device));
  for (int device : devices) {
    auto& row = report.peers.emplace_back();
    for (int peer : devices) {
      int can = device == peer;
      if (device != peer && driver.can_access_peer(&can, device, peer) != 0) can = 0;
      row.push_back(can != 0);
    }
  }
  add_of_management(libraries.management, report);
  return report;
}

std::string nccl_version(const std::string& beside, std::string* file) {
  std::vector<std::string> candidates;
  if (const char* const given = std::getenv("LOCKSTEP_NCCL"); given != nullptr && *given != 0) {
    candidates = {given};
  } else {
    // As the wheels of libtorch and of NCCL lie beside each other; ours of .deps too.
    if (!beside.empty()) candidates = {beside + "/libnccl.so.2", beside + "/../../nvidia/nccl/lib/libnccl.so.2"};
    candidates.push_back("libnccl.so.2");
  }
  for (const std::string& candidate : candidates) {
    const Library library(candidate);
    int (*version)(int*) = nullptr;
    int number = 0;
    if (!library.find("ncclGetVersion", version) || version(&number) != 0) continue;
    if (file != nullptr) *file = candidate;
    return nccl_version_text(number);
  }
  return "";
}

std::string nccl_version_text(int number) {
  const int major = number < 10000 ? 1000 : 10000;
  return std::to_string(number / major) + "." + std::to_string(number % major / 100) + "." +
         std::to_string(number % 100);
}

std::string peers_text(const std::vector<std::vector<bool>>& peers) {
  std::vector<std::string> pairs;
  std::size_t possible = 0;
  for (std::size_t i = 0; i < peers.size(); ++i)
    for (std::size_t j = i + 1; j < peers.size(); ++j) {
      ++possible;
      if (peers[i][j] && peers[j][i]) pairs.push_back(std::to_string(i) + "-" + std::to_string(j));
    }
  if (pairs.empty()) return "none";
  return pairs.size() == possible ? "all pairs" : base::join(pairs);
}

}  // namespace lockstep::device
