#include "lockstep/train/hints.h"

#include "lockstep/base/cores.h"

namespace lockstep::train {

std::string idle_cores_hint(int processes, int threads, int cores) {
  const std::string idle = base::idle_cores_text(processes, threads, cores);
  if (idle.empty()) return "";
  return "lockstep: hint: " + idle + "; more processes (-n) or --threads would use the rest";
}

std::string channels_last_hint(bool convolutions, bool channels_last) {
  if (!convolutions || channels_last) return "";
  return "lockstep: hint: --channels-last makes pictures and convolutions faster here; it changes the weights' bits";
}

}  // namespace lockstep::train
