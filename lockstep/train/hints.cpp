#include "lockstep/train/hints.h"

#include <cstdint>

namespace lockstep::train {
namespace {

std::string count(std::int64_t number, const std::string& noun, const std::string& plural) {
  return std::to_string(number) + " " + (number == 1 ? noun : plural);
}

}  // namespace

std::string idle_cores_hint(int processes, int threads, int cores) {
  const std::int64_t busy = std::int64_t(processes) * threads;
  if (busy >= cores) return "";
  return "lockstep: hint: " + count(processes, "process", "processes") + " of " + count(threads, "thread", "threads") +
         " use " + std::to_string(busy) + " of " + count(cores, "core", "cores") +
         "; more processes (-n) or --threads would use the rest";
}

std::string channels_last_hint(bool convolutions, bool channels_last) {
  if (!convolutions || channels_last) return "";
  return "lockstep: hint: --channels-last makes pictures and convolutions faster here; it changes the weights' bits";
}

}  // namespace lockstep::train
