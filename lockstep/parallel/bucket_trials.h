#pragma once

// Which size of buckets is the fastest (BucketOptions::autotune). Pure functions: all ranks decide alike.
//
// The first backward passes take the sizes in turns, round by round, each round beginning with the next size, so that
// what a machine does meanwhile falls on all of them. The first round warms up: it makes the memory of the buckets.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::parallel {

constexpr std::uint64_t kTrialRounds = 6;  ///< the first included, which does not count

/// Values of bucket_cap_mb that are tried with parameters of `bytes`: of 1, 5, 25 and 100 those that make other buckets
/// than the ones before. One at least.
std::vector<double> trial_sizes(const std::vector<std::size_t>& bytes);

/// Which of `sizes` sizes (one or more) backward pass `pass` has, counted from 0; nothing when all rounds are through.
std::optional<std::size_t> trial_of(std::uint64_t pass, std::size_t sizes);

/// The median of what the passes of each size took but in the first round. `seconds`: by size, then by round; two or
/// more rounds.
std::vector<double> trial_medians(std::vector<std::vector<double>> seconds);

/// The index of the smallest one, the first of equals.
std::size_t fastest(const std::vector<double>& seconds);

}  // namespace lockstep::parallel
