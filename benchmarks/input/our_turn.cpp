#include "benchmarks/input/our_turn.h"

#include <chrono>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/samplers/distributed.h"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Epoch after epoch, cut off at `samples`.
std::vector<std::int64_t> order_of(std::int64_t size, std::int64_t samples) {
  data::DistributedSampler sampler(size, 1, 0);
  std::vector<std::int64_t> order;
  for (std::uint64_t epoch = 0; std::int64_t(order.size()) < samples; ++epoch) {
    sampler.set_epoch(epoch);
    const std::vector<std::int64_t> indices = sampler.indices();
    order.insert(order.end(), indices.begin(), indices.end());
  }
  order.resize(std::size_t(samples));
  return order;
}

}  // namespace

TurnTime our_turn(const std::shared_ptr<const data::PictureBatches>& batches, const InputOptions& options,
                  std::int64_t samples) {
  const Clock::time_point began = Clock::now();
  const std::int64_t size = batches->set().size();
  const auto batch_size = std::size_t(options.batch_size);
  const std::vector<std::int64_t> order = order_of(size, samples);
  const auto source = [&](std::int64_t number) {
    const std::span<const std::int64_t> all(order);
    const std::size_t first = std::size_t(number) * batch_size;
    return batches->make(first / std::uint64_t(size), all.subspan(first, batch_size));
  };
  const std::int64_t count = samples / options.batch_size;
  data::Loader loader(source, 0, count, {.workers = options.workers, .prefetch = 2 * options.workers});
  Clock::duration waiting{};
  for (std::int64_t made = 0;; ++made) {
    const Clock::time_point asked = Clock::now();
    const std::optional<data::Batch> batch = loader.next();
    waiting += Clock::now() - asked;
    if (batch) continue;
    if (made != count) throw Error("bench input: " + std::to_string(made) + " batches for " + std::to_string(count));
    return {seconds(Clock::now() - began), seconds(waiting)};
  }
}

SampleTime split_of(const InputCase& input, std::int64_t samples) {
  const data::Compose transforms = transforms_of(input.transforms);
  const data::Normalize normalize({.mean = input.mean, .std = input.std});
  const std::vector<std::int64_t> order = order_of(input.set->size(), samples);
  std::vector<float> numbers;
  Clock::duration get{}, transform{}, write{};
  for (const std::int64_t index : order) {
    const Clock::time_point began = Clock::now();
    data::Sample sample = input.set->get(index);
    const Clock::time_point got = Clock::now();
    transforms.apply(sample.picture, {.index = std::uint64_t(index)});
    const Clock::time_point transformed = Clock::now();
    const data::Slot shape = normalize.slot(nullptr, sample.picture.size(), sample.picture.channels());
    numbers.resize(shape.bytes() / sizeof(float));
    normalize.write(sample.picture, normalize.slot(numbers.data(), shape.size, shape.channels));
    const Clock::time_point written = Clock::now();
    get += got - began, transform += transformed - got, write += written - transformed;
  }
  const auto each = [&](Clock::duration duration) { return seconds(duration) / double(samples); };
  return {each(get), each(transform), each(write)};
}

}  // namespace lockstep::bench
