#pragma once

// The built-in set: digits drawn by strokes, different in shape, slant, size, place, pen,
// brightness and noise. Nothing to download, and a ConvNet has to learn for most of an epoch
// before it reads 98 % of them.
//
// The set is part of the contract: the same bytes on every machine. Randomness is counter-
// based; the drawing uses only float operations that IEEE 754 rounds in one way (+ − × ÷ √),
// in a fixed order, and no function of the mathematical library.

#include <cstdint>

#include "lockstep/data/picture_set.h"
#include "lockstep/data/split.h"

namespace lockstep::data {

/// Samples of a whole split.
constexpr std::int64_t digits_size(Split split) { return split == Split::train ? 60000 : 10000; }

/// The whole split: grey pictures of 28x28, 10 classes, equally many of each, shuffled. Train
/// and test share no sample. About 10 microseconds a sample, one thread.
MemoryPictures make_digits(Split split, std::uint64_t seed = 0);

/// The first `count` samples of that split, count ≤ digits_size(split); UsageError else.
MemoryPictures make_digits(Split split, std::uint64_t seed, std::int64_t count);

}  // namespace lockstep::data
