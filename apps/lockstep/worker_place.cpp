#include "worker_place.h"

#include <chrono>
#include <thread>

namespace lockstep::app {

bool has_torch_contract(const rendezvous::Place& place) {
  return place.launcher == "torchrun" || place.launcher == "lockstep";
}

void let_rank_zero_speak(const rendezvous::Place& place) {
  if (place.rank > 0) std::this_thread::sleep_for(std::chrono::seconds(2));
}

}  // namespace lockstep::app
