#include "lockstep/launch/nodes/store_keeper.h"

namespace lockstep::launch {

void StoreKeeper::begin(std::int64_t generation) {
  store_ = {};
  generation_ = generation;
}

bool StoreKeeper::take(std::uint64_t client, const rendezvous::Message& message) {
  if (const auto* forget = std::get_if<rendezvous::StoreForget>(&message)) {
    store_.forget(client, forget->id);
    return true;
  }
  const auto* ask = std::get_if<rendezvous::StoreAsk>(&message);
  if (ask == nullptr) return false;
  if (ask->generation != generation_) return true;
  for (const rendezvous::Store::Reply& reply : store_.ask(client, *ask)) answer_(reply.client, reply.answer);
  return true;
}

}  // namespace lockstep::launch
