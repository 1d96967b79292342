#include "lockstep/data/cached_pictures.h"

namespace lockstep::data {

CachedPictures::CachedPictures(std::shared_ptr<const PictureSet> set, std::size_t limit_bytes)
    : set_(std::move(set)), limit_bytes_(limit_bytes), kept_(std::size_t(set_->size())), calls_(kCounters) {}

CachedPictures::~CachedPictures() {
  for (const std::atomic<const Sample*>& sample : kept_) delete sample.load();
}

Sample CachedPictures::get(std::int64_t index) const {
  check_index(index, size());
  Calls& calls = calls_[std::size_t(index) % kCounters];
  if (const Sample* kept = kept_[std::size_t(index)].load(std::memory_order_acquire)) {
    calls.hits.fetch_add(1, std::memory_order_relaxed);
    return *kept;
  }
  calls.misses.fetch_add(1, std::memory_order_relaxed);
  Sample sample = set_->get(index);
  keep(index, sample);
  return sample;
}

// Two threads may have read the same sample: the first one's stays.
void CachedPictures::keep(std::int64_t index, const Sample& sample) const {
  const std::size_t bytes = sample.picture.owned_bytes();
  if (bytes > limit_bytes_ - bytes_.load()) return;  // then it need not be decoded whole
  sample.picture.window();                           // before others see it, and before a limit counts it
  if (!reserve(bytes)) return;
  auto mine = std::make_unique<const Sample>(sample);
  const Sample* nothing = nullptr;
  if (!kept_[std::size_t(index)].compare_exchange_strong(nothing, mine.get(), std::memory_order_acq_rel)) {
    bytes_ -= bytes;
    return;
  }
  (void)mine.release();  // kept_ owns it now
  ++pictures_;
}

bool CachedPictures::reserve(std::size_t bytes) const {
  std::size_t taken = bytes_.load();
  do {
    if (bytes > limit_bytes_ - taken) return false;
  } while (!bytes_.compare_exchange_weak(taken, taken + bytes));
  return true;
}

CacheStatistics CachedPictures::statistics() const {
  CacheStatistics statistics{.pictures = pictures_.load(), .bytes = bytes_.load()};
  for (const Calls& calls : calls_) {
    statistics.hits += calls.hits.load();
    statistics.misses += calls.misses.load();
  }
  return statistics;
}

}  // namespace lockstep::data
