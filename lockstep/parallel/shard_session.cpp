#include "lockstep/parallel/shard_session.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

void reseed(std::uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace

ShardSession::ShardSession(const state::SharedState& state, ModuleBuffers& buffers, ShardSpan mine, std::uint64_t seed)
    : state_(state), buffers_(buffers), mine_(mine), seed_(seed), shards_(std::size_t(mine.count())) {
  for (Shard& shard : shards_) shard.module_buffers.resize(state.layout().module_buffer_bytes());
  restart();
}

const std::byte* ShardSession::committed_buffers() const {
  return state_.read(state_.layout().module_buffers(int(state_.committed().buffer)));
}

void ShardSession::open(int shard, std::uint64_t step) {
  if (!active_) buffers_.check_untouched();
  if (active_ != shard) {
    keep_active();
    const Shard& next = at(shard);
    buffers_.load(next.from_committed ? committed_buffers() : next.module_buffers.data());
  } else {
    add(at(shard).record, pass_record_);
    if (at(shard).from_committed) buffers_.load(committed_buffers());
  }
  at(shard).from_committed = false;
  active_ = shard;
  pass_record_ = {};
  gradients_came_ = false;
  reseed(shard_seed(seed_, step, shard, at(shard).passes++));
}

void ShardSession::keep_active() {
  if (!active_) return;
  Shard& shard = at(*active_);
  add(shard.record, pass_record_);
  buffers_.store(shard.module_buffers.data());
  active_.reset();
}

void ShardSession::record(double loss, std::int64_t samples) {
  if (!active_) throw UsageError("data parallel: record() outside a shard; call it between forward and step");
  add(pass_record_, {loss, samples});
}

void ShardSession::discard_gradients() {
  const bool goes_on = active_ && !gradients_came_;  // its backward follows
  const bool had_passes = begun();
  for (Shard& shard : shards_) {
    shard.record = {};
    shard.from_committed = !goes_on || &shard != &at(*active_);
  }
  if (gradients_came_) pass_record_ = {};
  gradients_came_ = false;
  if (!active_ && had_passes) {
    buffers_.load(committed_buffers());
    buffers_.remember();
  }
}

bool ShardSession::begun() const {
  return std::any_of(shards_.begin(), shards_.end(), [](const Shard& shard) { return shard.passes > 0; });
}

void ShardSession::close() {
  if (active_) {
    keep_active();
    buffers_.remember();
  }
  for (int shard = mine_.first; shard < mine_.last; ++shard)
    *state_.write_as<state::ShardRecord>(state_.layout().shard_record(shard)) = at(shard).record;
}

void ShardSession::write_module_buffers(std::byte* to) const {
  const std::vector<std::byte>& last = shards_.front().module_buffers;
  if (!last.empty()) std::memcpy(to, last.data(), last.size());
}

void ShardSession::restart() {
  active_.reset();
  pass_record_ = {};
  gradients_came_ = false;
  for (Shard& shard : shards_) {
    shard.passes = 0;
    shard.from_committed = true;
    shard.record = {};
  }
  buffers_.load(committed_buffers());
  buffers_.remember();
}

void add(state::ShardRecord& record, const state::ShardRecord& more) {
  if (record.samples == 0) {
    record = more;
  } else if (more.samples != 0) {
    record.samples += more.samples;
    record.loss += (more.loss - record.loss) * (double(more.samples) / double(record.samples));
  }
}

}  // namespace lockstep::parallel
