#pragma once

// Curves as SVG. Pure functions.

#include <string>
#include <vector>

#include "lockstep/page/read_run.h"

namespace lockstep::page {

/// A curve and its name in the legend.
struct Curve {
  std::string name;
  Points points;
  std::size_t color = 0;  ///< class c0 … c7 of the page's style
};

struct Chart {
  std::string title;
  std::vector<Curve> curves;
};

/// Where a chart's values lie, in its own units: x from 66 to 628, y from 208 (low) to 12 (high). The svg element says
/// the ranges in data-x0, data-x1, data-y0 and data-y1, by which the values of a curve can be read back to half a unit.
/// Where labels are long the drawing begins left of 0.
struct Plot {
  double left = 66, right = 628, top = 12, bottom = 208;
};

/// Round numbers, ascending, that divide [low, high] into three to eight parts; one where both are equal.
std::vector<double> ticks(double low, double high);

/// At most `most` + 2 points: of each part of equal width the first, least and greatest, in their order. Values that
/// are no numbers stay, for they break the curve.
Points thinned(const Points& points, std::size_t most);

/// "0.001", "1.5e+06": short, for an axis.
std::string short_number(double value);

/// &, <, > and quotes as HTML has them, control characters and what is no UTF-8 as base::shown() does.
std::string escaped(const std::string& text);

/// The svg element; empty when there is no number to draw.
std::string svg(const Chart& chart);

}  // namespace lockstep::page
