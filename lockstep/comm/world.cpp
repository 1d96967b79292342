#include "lockstep/comm/world.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "lockstep/base/core_binding.h"
#include "lockstep/comm/last_words.h"
#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/memory/caching_allocator.h"
#include "lockstep/rendezvous/segment_exchange.h"

namespace lockstep::comm {

World init(InitOptions options) {
  rendezvous::Place place = rendezvous::place_from_environment();
  if (options.bind_to == BindTo::core)
    base::bind_to_own_cores(place.local_rank, place.local_world_size, std::max(options.threads, 1));
  if (options.threads > 0) at::set_num_threads(options.threads);
  std::shared_ptr<Group> group;
  if (place.world_size == 1 && place.segment_path.empty()) {
    group = std::make_shared<SingleGroup>();
  } else {
    group = std::make_shared<ShmGroup>(rendezvous::share_segment(place, options.timeout), place.local_rank,
                                       options.timeout);
  }
  memory::set_local_ranks(group->topology().local_world);
  speak_before_terminating(group);
  return {std::move(place), std::move(group)};
}

}  // namespace lockstep::comm
