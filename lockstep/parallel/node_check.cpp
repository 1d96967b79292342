#include "lockstep/parallel/node_check.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>

#include "lockstep/comm/collectives.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/parallel/replica_check.h"
#include "lockstep/parallel/shards.h"
#include "lockstep/state/hash.h"

namespace lockstep::parallel {
namespace {

// Of a piece that is hashed at once. Slices end on its edges, so it does not matter who hashes which pieces.
constexpr std::size_t kHashedBytes = state::Layout::kBlock * sizeof(float);

// A number that no array of the flat range has.
constexpr std::size_t kFrozenArray = std::size_t(1) << 32;

// Bytes [begin, end) of array `number`, piece by piece, each with where it lies.
std::uint64_t hash_of_pieces(const std::byte* array, std::size_t number, std::size_t begin, std::size_t end) {
  std::uint64_t all = 0;
  while (begin < end) {
    const std::size_t next = std::min(end, (begin / kHashedBytes + 1) * kHashedBytes);
    const char* const bytes = reinterpret_cast<const char*>(array + begin);
    const std::uint64_t piece[] = {state::hash64({bytes, next - begin}), std::uint64_t(number), std::uint64_t(begin)};
    all ^= state::hash64({reinterpret_cast<const char*>(piece), sizeof piece});
    begin = next;
  }
  return all;
}

// Where an array of the flat range begins: number 0 has the weights, those from 1 on are the optimizer's, and the last
// is the average, which lies elsewhere than one more of theirs where a node has a share of them.
std::size_t place_of_array(const state::Layout& layout, int buffer, int array) {
  if (array == 0) return layout.weights(buffer);
  if (array > layout.options().optimizer_arrays) return layout.average(buffer);
  return layout.optimizer_array(buffer, array - 1);
}

// What lies `within` the flat range of a parameter in an array.
std::uint64_t hash_of_parameter(const state::SharedState& state, int buffer, int array, std::size_t parameter,
                                const state::Slice& within) {
  const state::Layout& layout = state.layout();
  const state::PlacedParameter& place = layout.parameters()[parameter];
  const std::size_t begin = std::max(place.offset, within.begin);
  const std::size_t end = std::min(place.offset + place.elements, within.end);
  const std::byte* const bytes = state.read(place_of_array(layout, buffer, array));
  return hash_of_pieces(bytes, std::size_t(array), begin * sizeof(float), end * sizeof(float));
}

int arrays_in(const state::Layout& layout) {
  return 1 + layout.options().optimizer_arrays + (layout.options().average ? 1 : 0);
}

// Whether each node has all of an array: of the optimizer's it may have a share.
bool is_whole(const state::Layout& layout, int array) {
  return array == 0 || array > layout.options().optimizer_arrays || layout.options().shares == 1;
}

// The same of a frozen parameter and bytes of the frozen area.
std::uint64_t hash_of_frozen(const state::SharedState& state, int buffer, const state::PlacedBuffer& place,
                             const state::Slice& within) {
  const std::byte* const area = state.read(state.layout().frozen_area(state.frozen_area(buffer)));
  return hash_of_pieces(area, kFrozenArray, std::max(place.offset, within.begin),
                        std::min(place.offset + place.bytes, within.end));
}

// Which bytes of the frozen area a rank hashes; as Layout::slice() of the flat range.
state::Slice frozen_slice(const state::Layout& layout, int rank, int ranks) {
  const std::size_t pieces = (layout.frozen_bytes() + kHashedBytes - 1) / kHashedBytes;
  const auto edge = [&](int r) { return pieces * std::size_t(r) / std::size_t(ranks) * kHashedBytes; };
  return {edge(rank), edge(rank + 1)};
}

std::string own_host() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return host;
}

}  // namespace

std::uint64_t part_of_hash(const state::SharedState& state, int buffer, int rank, int ranks) {
  const state::Layout& layout = state.layout();
  std::uint64_t part = 0;
  for (int array = 0; array < arrays_in(layout); ++array)
    for (std::size_t i = 0; i < layout.parameters().size() && is_whole(layout, array); ++i)
      part ^= hash_of_parameter(state, buffer, array, i, layout.slice(rank, ranks));
  for (const state::PlacedBuffer& place : layout.frozen())
    part ^= hash_of_frozen(state, buffer, place, frozen_slice(layout, rank, ranks));
  return part;
}

std::vector<NamedHash> hashes_by_parameter(const state::SharedState& state, int buffer) {
  const state::Layout& layout = state.layout();
  const std::vector<state::PlacedParameter>& trained = layout.parameters();
  const int optimizers = layout.options().optimizer_arrays;
  std::vector<NamedHash> hashes;
  // Of arrays [first, last), for each trained parameter.
  const auto add = [&](const std::string& what, int first, int last) {
    for (std::size_t i = 0; i < trained.size() && first < last && is_whole(layout, first); ++i) {
      std::uint64_t hash = 0;
      for (int array = first; array < last; ++array)
        hash ^= hash_of_parameter(state, buffer, array, i, {0, layout.elements()});
      hashes.push_back({what + " of parameter '" + trained[i].spec.name + "'", hash});
    }
  };
  add("values", 0, 1);
  for (const state::PlacedBuffer& place : layout.frozen())
    hashes.push_back({"values of parameter '" + place.spec.name + "'",
                      hash_of_frozen(state, buffer, place, {0, layout.frozen_bytes()})});
  add("optimizer state", 1, 1 + optimizers);
  add("average", 1 + optimizers, arrays_in(layout));
  return hashes;
}

NodeCheck::NodeCheck(const FusedState& fused, comm::Group& group, std::uint64_t every)
    : fused_(fused), group_(group), every_(every) {}

bool NodeCheck::is_due() const {
  if (every_ == 0 || !fused_.nodes || fused_.nodes->ranks().nodes() == 1) return false;
  const std::uint64_t step = fused_.state.committed().step;
  return step > 0 && step % every_ == 0;
}

void NodeCheck::tell() const {
  if (!is_due()) return;
  const comm::Topology& place = group_.topology();
  const state::SharedState& state = fused_.state;
  const state::Layout& layout = state.layout();
  const int first = shards_of(place, layout.options().shards).first;
  state.write_as<state::ShardRecord>(layout.shard_record(first))->replica =
      part_of_hash(state, int(state.committed().buffer), place.local_rank, place.local_world);
}

std::string NodeCheck::find(const std::vector<const state::ShardRecord*>& records) const {
  if (!is_due()) return "";
  const NodeRanks& ranks = fused_.nodes->ranks();
  std::vector<std::uint64_t> hashes;
  for (int node = 0; node < ranks.nodes(); ++node) {
    const ShardSpan theirs = ranks.shards_of(node, int(records.size()));
    hashes.push_back(0);
    for (int shard = theirs.first; shard < theirs.last; ++shard) hashes.back() ^= records[std::size_t(shard)]->replica;
  }
  if (std::ranges::adjacent_find(hashes, std::not_equal_to<>{}) == hashes.end()) return "";
  std::string found;
  comm::or_abort(group_, [&] { found = name_diverged(); });
  return found;
}

// On all ranks: they have read the same records.
std::string NodeCheck::name_diverged() const {
  const base::Commit now = fused_.state.committed();
  const NodeRanks& ranks = fused_.nodes->ranks();
  const std::vector<NamedHash> mine = hashes_by_parameter(fused_.state, int(now.buffer));
  std::string told;
  for (const NamedHash& one : mine) told.append(reinterpret_cast<const char*>(&one.hash), sizeof one.hash);
  const std::vector<std::string> all = comm::all_gather_bytes(group_, told + own_host());
  std::vector<std::vector<std::int64_t>> hashes;
  std::vector<std::string> hosts;
  for (int node = 0; node < ranks.nodes(); ++node) {
    const std::string& theirs = all[std::size_t(ranks.first(node))];
    hashes.emplace_back(mine.size());
    std::memcpy(hashes.back().data(), theirs.data(), told.size());
    hosts.push_back(theirs.substr(told.size()));
  }
  const auto called = [&](int node) { return "node " + std::to_string(node) + " (" + hosts[std::size_t(node)] + ")"; };
  const std::string when = "after step " + std::to_string(now.step);
  const std::optional<Diverged> diverged = find_diverged(hashes);
  if (!diverged)
    return "the nodes had different states " + when +
           " and have equal ones now, so one of them does not read its memory as it is (verify_replicas_every)";
  const std::string others =
      ranks.nodes() > 2 ? std::string("most nodes") : called(0) + ", and of two nobody knows which is right";
  return called(diverged->rank) + " has other " + mine[diverged->parameter].name + " " + when + " than " + others +
         " (verify_replicas_every)";
}

}  // namespace lockstep::parallel
