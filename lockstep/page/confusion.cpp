#include "lockstep/page/confusion.h"

#include <algorithm>
#include <cstdio>

#include "lockstep/page/chart.h"

namespace lockstep::page {
namespace {

constexpr double kSide = 640;           // of the svg, in its own units
constexpr double kMargin = 40;          // at the right, into which the last name leans
constexpr double kNames = 96;           // room for the names of the classes
constexpr std::size_t kMostNamed = 30;  // more do not fit beside their rows
constexpr std::size_t kMostCounted = 12;
constexpr std::size_t kLongestName = 12;

std::string one_decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

// By letters, of which one may be several bytes.
std::string shortened(const std::string& name) {
  std::string text;
  std::size_t letters = 0;
  for (const char byte : name) {
    if ((byte & 0xC0) != 0x80 && ++letters > kLongestName) return text + "…";
    text += byte;
  }
  return text;
}

std::string text_at(const std::string& anchor, double x, double y, const std::string& more, const std::string& text) {
  return "<text text-anchor=\"" + anchor + "\" x=\"" + one_decimal(x) + "\" y=\"" + one_decimal(y) + "\"" + more + ">" +
         escaped(text) + "</text>";
}

std::string names_around(const std::vector<std::string>& classes, double cell) {
  if (classes.size() > kMostNamed) return "";
  std::string text;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const double middle = kNames + (double(i) + 0.5) * cell;
    const std::string turned = " transform=\"rotate(-60 " + one_decimal(middle) + " " + one_decimal(kNames - 6) + ")\"";
    text += text_at("end", kNames - 6, middle + 4, "", shortened(classes[i])) +
            text_at("start", middle, kNames - 6, turned, shortened(classes[i]));
  }
  return text;
}

std::string square(const Answers::Cell& one, double share, double cell, bool counted) {
  const double x = kNames + double(one.prediction) * cell, y = kNames + double(one.truth) * cell;
  const std::string right = one.truth == one.prediction ? "right" : "wrong";
  char opacity[32];
  std::snprintf(opacity, sizeof(opacity), "%.3f", 0.12 + 0.88 * share);
  std::string text = "<rect class=\"" + right + "\" x=\"" + one_decimal(x) + "\" y=\"" + one_decimal(y) +
                     "\" width=\"" + one_decimal(cell) + "\" height=\"" + one_decimal(cell) + "\" fill-opacity=\"" +
                     opacity + "\" data-truth=\"" + std::to_string(one.truth) + "\" data-prediction=\"" +
                     std::to_string(one.prediction) + "\" data-count=\"" + std::to_string(one.count) + "\"/>";
  if (counted)
    text += text_at("middle", x + cell / 2, y + cell / 2 + 4, share > 0.5 ? " class=\"on\"" : "",
                    std::to_string(one.count));
  return text;
}

// Base64 is no markup.
std::string picture_cell(const Mistake& mistake) {
  if (mistake.picture.empty()) return "<td></td>";
  return "<td><img alt=\"sample " + std::to_string(mistake.sample) + "\" src=\"data:image/png;base64," +
         mistake.picture + "\"></td>";
}

std::string name_at(const Answers& answers, std::int64_t number) { return answers.classes[std::size_t(number)]; }

}  // namespace

std::string confusion_svg(const Answers& answers, const std::string& title) {
  std::vector<double> rows(answers.classes.size());
  for (const Answers::Cell& cell : answers.cells) rows[std::size_t(cell.truth)] += double(cell.count);
  if (std::ranges::all_of(rows, [](double count) { return count == 0; })) return "";
  const double cell = (kSide - kNames - kMargin) / double(rows.size());
  std::string text = "<svg class=\"confusion\" viewBox=\"0 0 640 604\" role=\"img\"><title>" + escaped(title) +
                     "</title>" + names_around(answers.classes, cell);
  for (const Answers::Cell& one : answers.cells)
    if (one.count > 0)
      text += square(one, double(one.count) / rows[std::size_t(one.truth)], cell, rows.size() <= kMostCounted);
  return text + "</svg>";
}

std::string classes_table(const Answers& answers) {
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < answers.by_class.size(); ++i)
    if (const Answers::OfClass& one = answers.by_class[i]; one.samples > 0)
      order.emplace_back(double(one.right) / double(one.samples), i);
  if (order.empty()) return "";
  std::ranges::sort(order);
  std::string text =
      "<div class=\"wide\"><table "
      "class=\"classes\"><tr><th>class</th><th>right</th><th>of</th><th>accuracy</th></tr>\n";
  for (const auto& [accuracy, i] : order)
    text += "<tr><td>" + escaped(answers.classes[i]) + "</td><td>" + std::to_string(answers.by_class[i].right) +
            "</td><td>" + std::to_string(answers.by_class[i].samples) + "</td><td>" + one_decimal(100 * accuracy) +
            " %</td></tr>\n";
  return text + "</table></div>\n";
}

std::string mistakes_table(const Answers& answers) {
  if (answers.mistakes.empty()) return "";
  const bool shown = std::ranges::any_of(answers.mistakes, [](const Mistake& one) { return !one.picture.empty(); });
  std::string text = "<div class=\"wide\"><table class=\"mistakes\"><tr>" +
                     std::string(shown ? "<th>picture</th>" : "") +
                     "<th>sample</th><th>is</th><th>was taken for</th><th>sure by</th><th>file</th></tr>\n";
  for (const Mistake& mistake : answers.mistakes)
    text += "<tr>" + (shown ? picture_cell(mistake) : "") + "<td>" + std::to_string(mistake.sample) + "</td><td>" +
            escaped(name_at(answers, mistake.truth)) + "</td><td>" + escaped(name_at(answers, mistake.prediction)) +
            "</td><td>" + one_decimal(100 * mistake.share) + " %</td><td>" + escaped(mistake.file) + "</td></tr>\n";
  return text + "</table></div>\n";
}

}  // namespace lockstep::page
