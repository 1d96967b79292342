#include "lockstep/page/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lockstep/base/text.h"

namespace lockstep::page {
namespace {

constexpr std::size_t kMostPoints = 600;  // the plot is not wider
constexpr Plot kPlot;
constexpr double kWidth = 640;        // of a drawing whose labels are short
constexpr double kLabelGap = 6;       // between the plot and a label at its left
constexpr double kLetterWidth = 7.7;  // of a figure at 12px, in the widest of the usual fonts

struct Range {
  double low = 0, high = 1;
};

// Round marks do not fit between numbers that differ in their last digits only.
Range widened(double low, double high) {
  const double least = std::max(std::abs(low), std::abs(high)) * 1e-9;
  if (high - low > least) return {low, high};
  const double half = std::max(std::abs(low) * 0.05, 1e-12);
  return {low - half, high + half};
}

struct Frame {
  Range x, y;

  double at_x(double value) const {
    return kPlot.left + (value - x.low) / (x.high - x.low) * (kPlot.right - kPlot.left);
  }
  double at_y(double value) const {
    return kPlot.bottom - (value - y.low) / (y.high - y.low) * (kPlot.bottom - kPlot.top);
  }
};

bool frame_of(const Chart& chart, Frame& frame) {
  bool any = false;
  Range x, y;
  for (const Curve& curve : chart.curves)
    for (const Point& point : curve.points) {
      if (!std::isfinite(point.value)) continue;
      x = any ? Range{std::min(x.low, point.step), std::max(x.high, point.step)} : Range{point.step, point.step};
      y = any ? Range{std::min(y.low, point.value), std::max(y.high, point.value)} : Range{point.value, point.value};
      any = true;
    }
  frame = {widened(x.low, x.high), widened(y.low, y.high)};
  return any;
}

std::string formatted(const char* pattern, double value) {
  char text[40];
  std::snprintf(text, sizeof(text), pattern, value);
  return text;
}

std::string place(double value) { return formatted("%.2f", value); }

// 17 digits read back as the same number.
std::string exact(double value) { return formatted("%.17g", value); }

std::string line(const char* kind, double x1, double y1, double x2, double y2) {
  return std::string("<line class=\"") + kind + "\" x1=\"" + place(x1) + "\" y1=\"" + place(y1) + "\" x2=\"" +
         place(x2) + "\" y2=\"" + place(y2) + "\"/>";
}

std::string label(const char* anchor, double x, double y, const std::string& text) {
  return std::string("<text text-anchor=\"") + anchor + "\" x=\"" + place(x) + "\" y=\"" + place(y) + "\">" + text +
         "</text>";
}

// How far the drawing reaches to the left of 0, so that no label is cut off: "0.0001025" takes more than the usual
// room.
double left_of_zero(const Frame& frame) {
  std::size_t longest = 0;
  for (const double value : ticks(frame.y.low, frame.y.high)) longest = std::max(longest, short_number(value).size());
  return std::max(0.0, std::ceil(double(longest) * kLetterWidth + kLabelGap - kPlot.left));
}

// Nor the last label of the other axis, which stands below the end of the plot: "6000".
double right_end(const Frame& frame) {
  double end = kWidth;
  for (const double value : ticks(frame.x.low, frame.x.high))
    end = std::max(end, std::ceil(frame.at_x(value) + double(short_number(value).size()) * kLetterWidth / 2));
  return end;
}

std::string axes(const Frame& frame) {
  std::string text;
  for (const double value : ticks(frame.y.low, frame.y.high))
    text += line("grid", kPlot.left, frame.at_y(value), kPlot.right, frame.at_y(value)) +
            label("end", kPlot.left - kLabelGap, frame.at_y(value) + 4, short_number(value));
  for (const double value : ticks(frame.x.low, frame.x.high))
    text += line("grid", frame.at_x(value), kPlot.top, frame.at_x(value), kPlot.bottom) +
            label("middle", frame.at_x(value), kPlot.bottom + 17, short_number(value));
  return text;
}

// A piece between two values that are no numbers. One point is a dot.
std::string piece(const std::vector<std::string>& places, const std::string& name, std::size_t color) {
  const std::string of = "class=\"c" + std::to_string(color % 8) + "\" data-name=\"" + name + "\"";
  if (places.empty()) return "";
  if (places.size() > 1) return "<polyline " + of + " points=\"" + base::join(places, " ") + "\"/>";
  const std::size_t comma = places[0].find(',');
  return "<circle " + of + " cx=\"" + places[0].substr(0, comma) + "\" cy=\"" + places[0].substr(comma + 1) +
         "\" r=\"3\"/>";
}

std::string drawn(const Curve& curve, const Frame& frame) {
  const std::string name = escaped(curve.name);
  std::string text;
  std::vector<std::string> places;
  for (const Point& point : thinned(curve.points, kMostPoints)) {
    if (std::isfinite(point.value)) {
      places.push_back(place(frame.at_x(point.step)) + "," + place(frame.at_y(point.value)));
      continue;
    }
    text += piece(places, name, curve.color);
    places.clear();
  }
  return text + piece(places, name, curve.color);
}

}  // namespace

std::vector<double> ticks(double low, double high) {
  if (!(high > low)) return {low};
  const double rough = (high - low) / 4, power = std::pow(10, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0, 10.0})
    if (factor * power <= rough * 1.0001) step = factor * power;
  std::vector<double> all;
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  for (double count = first; count <= last; ++count) all.push_back(count == 0 ? 0 : count * step);
  return all;
}

Points thinned(const Points& points, std::size_t most) {
  if (points.size() <= most || most < 3) return points;
  const std::size_t parts = most / 3;
  Points few;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = part * points.size() / parts, end = (part + 1) * points.size() / parts;
    std::size_t least = begin, greatest = begin;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(points[i].value)) {
        least = greatest = i;  // the break is what there is to see
        break;
      }
      if (points[i].value < points[least].value) least = i;
      if (points[i].value > points[greatest].value) greatest = i;
    }
    std::vector<std::size_t> kept = {begin, least, greatest};
    std::ranges::sort(kept);
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const std::size_t i : kept) few.push_back(points[i]);
  }
  few.push_back(points.back());
  return few;
}

std::string short_number(double value) { return formatted("%.5g", value); }

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char letter : base::shown(text)) {
    switch (letter) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += letter;
    }
  }
  return safe;
}

std::string svg(const Chart& chart) {
  Frame frame;
  if (!frame_of(chart, frame)) return "";
  const double more = left_of_zero(frame);
  std::string text = "<svg viewBox=\"" + short_number(0 - more) + " 0 " + short_number(right_end(frame) + more) +
                     " 232\" role=\"img\" data-x0=\"" + exact(frame.x.low) + "\" data-x1=\"" + exact(frame.x.high) +
                     "\" data-y0=\"" + exact(frame.y.low) + "\" data-y1=\"" + exact(frame.y.high) + "\"><title>" +
                     escaped(chart.title) + "</title>" + axes(frame);
  for (const Curve& curve : chart.curves) text += drawn(curve, frame);
  return text + "</svg>";
}

}  // namespace lockstep::page
