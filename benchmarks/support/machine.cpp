#include "benchmarks/support/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace lockstep::bench {
namespace {

std::string cpu_info(const std::string& wanted) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind(wanted, 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::size_t bytes_of(int name) {
  const long bytes = sysconf(name);
  return bytes > 0 ? std::size_t(bytes) : 0;
}

}  // namespace

Machine read_machine() {
  Machine machine;
  // Virtual machines hide the model's name; family and model tell the generation.
  machine.cpu = cpu_info("model name") + " (family " + cpu_info("cpu family") + ", model " + cpu_info("model\t") + ")" +
                instruction_sets(cpu_info("flags"));
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  machine.cores = CPU_COUNT(&set);
  machine.memory_bytes = bytes_of(_SC_PHYS_PAGES) * bytes_of(_SC_PAGE_SIZE);
  utsname name{};
  uname(&name);
  machine.kernel = name.release;
  getloadavg(&machine.load, 1);
  return machine;
}

std::string instruction_sets(const std::string& flags) {
  const std::string words = " " + flags + " ";
  std::string found;
  for (const std::string name : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"})
    if (words.find(" " + name + " ") != std::string::npos) found += (found.empty() ? " with " : ", ") + name;
  return found;
}

}  // namespace lockstep::bench
