#pragma once

// A sample as a small picture for people.

#include <string>

#include "lockstep/data/transforms/picture.h"

namespace lockstep::train {

/// No side is longer.
inline constexpr int kThumbnailSide = 64;

/// The picture as the bytes of a PNG file, made smaller where a side is longer than kThumbnailSide, in its proportions.
/// UsageError as of Picture::pixels().
std::string thumbnail(data::Picture picture);

}  // namespace lockstep::train
