// The functions of libcuda.so.1 and libnvidia-ml.so.1 that are called, of a machine with two cards. LOCKSTEP_FAKE_GPUS:
// how many cards, or "broken".

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

const char* setting() {
  const char* const text = std::getenv("LOCKSTEP_FAKE_GPUS");
  return text != nullptr ? text : "2";
}

constexpr const char* kIds[] = {"0000:3B:00.0", "0000:AF:00.0", "0000:D8:00.0"};

}  // namespace

extern "C" {

int cuInit(unsigned) { return std::strcmp(setting(), "broken") == 0 ? 999 : 0; }
int cuDriverGetVersion(int* version) { return *version = 12040, 0; }
int cuGetErrorString(int error, const char** text) {
  *text = "unknown error";
  return error == 999 ? 0 : 1;
}
int cuDeviceGetCount(int* count) { return *count = std::atoi(setting()), 0; }
int cuDeviceGet(int* device, int index) { return *device = index + 10, 0; }
int cuDeviceGetName(char* name, int length, int device) {
  std::snprintf(name, std::size_t(length), "Card %d", device - 10);
  return 0;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int device) { return *bytes = std::size_t(device) << 30, 0; }
int cuDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, std::size_t(length), "%s", kIds[device - 10]);
  return 0;
}
int cuDeviceGetAttribute(int* value, int which, int) { return *value = which == 75 ? 8 : which == 76 ? 6 : 0, 0; }
int cuDeviceCanAccessPeer(int* can, int device, int peer) { return *can = device + peer == 21, 0; }

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "550.54.15");
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  if (std::strcmp(id, kIds[0]) != 0) return 6;
  *device = const_cast<char*>(kIds[0]);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = 10ULL << 30, memory[1] = 3ULL << 30, memory[2] = 7ULL << 30;
  return 0;
}

}  // extern "C"
