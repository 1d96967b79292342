#include "lockstep/parallel/bucket_plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

constexpr double kMebibyte = 1 << 20;
constexpr double kCapacity = 25, kFirstCapacity = 1;  // as PyTorch's bucket_cap_mb, _DEFAULT_FIRST_BUCKET_BYTES

std::size_t capacity_of(const char* option, double mebibytes) {
  if (!(mebibytes > 0 && std::isfinite(mebibytes)))
    throw UsageError("data parallel: buckets." + std::string(option) + " is " + std::to_string(mebibytes) +
                     "; more than 0");
  return std::size_t(std::min(mebibytes * kMebibyte, 0x1p62));
}

}  // namespace

std::vector<std::size_t> bucket_capacities(const BucketOptions& options) {
  std::vector<std::size_t> capacities;
  if (!options.bucket_cap_mb_list.empty()) {
    if (options.bucket_cap_mb || options.first_bucket_mb)
      throw UsageError("data parallel: buckets.bucket_cap_mb_list beside " +
                       std::string(options.bucket_cap_mb ? "bucket_cap_mb" : "first_bucket_mb") + "; give one of them");
    for (double one : options.bucket_cap_mb_list) capacities.push_back(capacity_of("bucket_cap_mb_list", one));
    return capacities;
  }
  const double first =
      options.first_bucket_mb ? *options.first_bucket_mb : options.bucket_cap_mb.value_or(kFirstCapacity);
  return {capacity_of("first_bucket_mb", first),
          capacity_of("bucket_cap_mb", options.bucket_cap_mb.value_or(kCapacity))};
}

std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<std::size_t>& bytes,
                                                   const std::vector<std::size_t>& capacities) {
  std::vector<std::vector<std::size_t>> buckets;
  bool full = true;
  std::size_t filled = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    if (full) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(i);
    filled += bytes[i];
    full = filled >= capacities[std::min(buckets.size(), capacities.size()) - 1];
  }
  return buckets;
}

std::vector<std::vector<std::size_t>> cut_by_dtype(const std::vector<std::vector<std::size_t>>& buckets,
                                                   const std::vector<at::ScalarType>& dtypes) {
  std::vector<std::vector<std::size_t>> cut;
  for (const auto& bucket : buckets) {
    std::vector<std::size_t> rest = bucket;
    while (!rest.empty()) {
      const auto others = std::stable_partition(
          rest.begin(), rest.end(), [&, dtype = dtypes[rest.front()]](std::size_t i) { return dtypes[i] == dtype; });
      cut.emplace_back(rest.begin(), others);
      rest.erase(rest.begin(), others);
    }
  }
  return cut;
}

}  // namespace lockstep::parallel
