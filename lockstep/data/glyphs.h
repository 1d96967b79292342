#pragma once

// The ten digits as pen strokes, in several hands each.

#include <span>
#include <utility>
#include <vector>

namespace lockstep::data {

/// Control points of a quadratic B-spline, (x, y) with y downwards, about −70 … 70 by
/// −110 … 110. A doubled point makes a corner there.
using Stroke = std::vector<std::pair<int, int>>;
using Glyph = std::vector<Stroke>;

/// The ways to write `digit`, 0 … 9. Thread-safe.
std::span<const Glyph> glyphs(int digit);

}  // namespace lockstep::data
