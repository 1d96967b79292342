#include "lockstep/page/page.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <set>

#include "lockstep/page/chart.h"
#include "lockstep/page/confusion.h"

namespace lockstep::page {
namespace {

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--soft:#667;--rule:#d8dde3;
--k0:#0b62c4;--k1:#c2410c;--k2:#15803d;--k3:#7e22ce;--k4:#b91c5c;--k5:#0e7490;--k6:#854d0e;--k7:#475569}
@media(prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e6e9ed;--soft:#9aa4b0;--rule:#343b44;
--k0:#6cb2ff;--k1:#ff9a62;--k2:#5fd38a;--k3:#cf9bff;--k4:#ff8fb8;--k5:#5fd4e6;--k6:#e3b75a;--k7:#b3c0cf}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1400px;padding:1rem;background:var(--paper);color:var(--ink);
font:16px/1.45 system-ui,sans-serif}
h1{font-size:1.4rem;margin:.2rem 0 1rem}h2{font-size:1.05rem;margin:0 0 .3rem}
.charts{display:grid;gap:1.2rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr))}
.wide{overflow-x:auto;margin-bottom:1.5rem}
table{border-collapse:collapse;font-size:.9rem}
th,td{text-align:left;padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--rule);white-space:nowrap}
th{color:var(--soft);font-weight:600}
svg{width:100%;height:auto;display:block}
svg text{font-size:12px;fill:var(--soft)}
td img{height:4rem;display:block;image-rendering:pixelated}
rect.right{fill:var(--k0)}rect.wrong{fill:var(--k1)}svg text.on{fill:var(--paper)}
.grid{stroke:var(--rule);stroke-width:1}
polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}
.legend{font-size:.85rem;color:var(--soft);display:flex;flex-wrap:wrap;gap:.1rem 1rem;
margin:0;padding:0;list-style:none}
.note{margin:.2rem 0;font-size:.85rem;color:var(--soft)}
.legend b{display:inline-block;width:1rem;height:.2rem;margin-right:.35rem;vertical-align:middle}
)";

std::string colors() {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    const std::string c = "c" + std::to_string(i), k = "var(--k" + std::to_string(i) + ")";
    text += "polyline." + c + "{stroke:" + k + "}circle." + c + "{fill:" + k + "}b." + c + "{background:" + k + "}\n";
  }
  return text;
}

// What a number is called; by its own name where nobody has named it.
std::string title_of(const std::string& part, const std::string& field) {
  static const std::map<std::string, std::string> titles = {
      {"train loss", "Loss in training"},
      {"train lr", "Learning rate"},
      {"train gradient_norm", "Norm of the gradients, before clipping"},
      {"train samples_per_second", "Samples per second"},
      {"train loss_scale", "Scale of the loss"},
      {"train memory_bytes", "Memory of all processes, in MiB"},
      {"eval loss", "Loss of the evaluation"},
      {"eval top1", "Accuracy (share of right answers)"},
      {"eval top5", "Share of right answers among the five likeliest"},
      {"eval mae", "Mean absolute error"},
      {"eval r2", "R²"},
      {"eval ema_loss", "Loss of the average of the weights"},
      {"eval ema_top1", "Accuracy of the average of the weights"},
      {"eval ema_top5", "The same among the five likeliest"}};
  const auto found = titles.find(part + " " + field);
  return found == titles.end() ? part + ": " + field : found->second;
}

std::string cell(const std::string& text) { return "<td>" + escaped(text) + "</td>"; }

std::string number_cell(double value) { return cell(std::isnan(value) ? "–" : short_number(value)); }

std::string fact(const RunRecord& run, const std::string& name) {
  for (const auto& [key, value] : run.facts)
    if (key == name) return value;
  return "–";
}

std::string seconds_text(double seconds) {
  char text[64];
  const auto whole = static_cast<long long>(std::min(seconds, 1e15));
  std::snprintf(text, sizeof(text), "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  return text;
}

std::set<std::string> fields_of(const std::vector<RunRecord>& runs, std::map<std::string, Points> RunRecord::*part) {
  std::set<std::string> fields;
  for (const RunRecord& run : runs)
    for (const auto& [field, points] : run.*part) fields.insert(field);
  return fields;
}

// The best of an accuracy is the greatest, of all others what came last is told.
std::string summary(const std::vector<RunRecord>& runs) {
  static const std::vector<std::string> facts = {"model", "dataset", "optimizer", "world_size", "global_batch_size"};
  const std::set<std::string> evaluated = fields_of(runs, &RunRecord::eval);
  std::string text = "<div class=\"wide\"><table><tr><th>run</th>";
  for (const std::string& name : facts) text += "<th>" + escaped(name) + "</th>";
  text += "<th>steps</th><th>time</th><th>loss</th>";
  for (const std::string& field : evaluated) text += "<th>eval " + escaped(field) + "</th>";
  text += "<th>samples/s</th><th>starts</th><th>end</th><th>weights</th></tr>\n";
  for (const RunRecord& run : runs) {
    const auto last = [](const std::map<std::string, Points>& part, const std::string& field) {
      const auto found = part.find(field);
      return number_cell(found == part.end() ? std::nan("") : RunRecord::last(found->second));
    };
    text += "<tr>" + cell(run.name);
    for (const std::string& name : facts) text += cell(fact(run, name));
    text += cell(std::to_string(run.steps)) + cell(seconds_text(run.seconds)) + last(run.train, "loss");
    for (const std::string& field : evaluated) text += last(run.eval, field);
    text += last(run.train, "samples_per_second") + cell(std::to_string(run.starts.size())) +
            cell(run.done ? "done" : "did not end") + cell(run.weights_hash.substr(0, 12)) + "</tr>\n";
  }
  return text + "</table></div>\n";
}

std::string legend(const Chart& chart) {
  std::string text = "<ul class=\"legend\">";
  for (const Curve& curve : chart.curves)
    text += "<li><b class=\"c" + std::to_string(curve.color % 8) + "\"></b>" + escaped(curve.name) + "</li>";
  return text + "</ul>";
}

std::string shown_chart(const Chart& chart) {
  const std::string drawn = svg(chart);
  if (drawn.empty()) return "";
  return "<section><h2>" + escaped(chart.title) + "</h2>" + drawn + legend(chart) + "</section>\n";
}

bool is_time(const std::string& field) { return field.ends_with("_seconds"); }

Points in_its_unit(const std::string& field, Points points) {
  if (field == "memory_bytes")
    for (Point& point : points) point.value /= 1 << 20;
  return points;
}

std::string charts(const std::vector<RunRecord>& runs, std::map<std::string, Points> RunRecord::*part,
                   const std::string& name) {
  std::string text;
  for (const std::string& field : fields_of(runs, part)) {
    if (is_time(field)) continue;
    Chart chart{.title = title_of(name, field)};
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (const auto found = (runs[i].*part).find(field); found != (runs[i].*part).end())
        chart.curves.push_back({.name = runs[i].name, .points = in_its_unit(field, found->second), .color = i});
    text += shown_chart(chart);
  }
  return text;
}

// Where the seconds of a run's steps went, in percent.
std::string time_split(const RunRecord& run) {
  static const std::vector<std::pair<std::string, std::string>> parts = {{"data_seconds", "waiting for data"},
                                                                         {"compute_seconds", "forward and backward"},
                                                                         {"step_seconds", "other ranks and update"}};
  Chart chart{.title = "Time of the steps in percent: " + run.name};
  std::map<double, double> total;
  for (const auto& [field, title] : parts)
    if (const auto found = run.train.find(field); found != run.train.end())
      for (const Point& point : found->second) total[point.step] += point.value;
  for (const auto& [field, title] : parts) {
    const auto found = run.train.find(field);
    if (found == run.train.end()) continue;
    Curve curve{.name = title, .color = chart.curves.size()};
    for (const Point& point : found->second)
      if (total[point.step] > 0) curve.points.push_back({point.step, 100 * point.value / total[point.step]});
    chart.curves.push_back(std::move(curve));
  }
  return shown_chart(chart);
}

std::string answers(const RunRecord& run) {
  if (!run.answers) return "";
  const std::string drawn = confusion_svg(*run.answers, "Confusion: " + run.name);
  std::string text;
  if (!drawn.empty())
    text += "<section><h2>What was taken for what after step " + std::to_string(run.answers->step) + ": " +
            escaped(run.name) + "</h2>" + drawn +
            "<p class=\"note\">A row is a class, a column what its samples were "
            "taken for.</p></section>\n";
  if (const std::string table = classes_table(*run.answers); !table.empty())
    text += "<section><h2>Accuracy by class: " + escaped(run.name) + "</h2>" + table + "</section>\n";
  if (const std::string table = mistakes_table(*run.answers); !table.empty())
    text += "<section><h2>The surest mistakes: " + escaped(run.name) + "</h2>" + table + "</section>\n";
  return text;
}

std::string time_text(double time) {
  const auto whole = static_cast<std::time_t>(std::clamp(time, -1e15, 1e15));
  std::tm parts{};
  char text[40];
  if (gmtime_r(&whole, &parts) == nullptr || std::strftime(text, sizeof(text), "%F %T UTC", &parts) == 0) return "–";
  return text;
}

std::string told(const Fault& fault) {
  const std::string cause = fault.cause.empty() ? "not known of what" : fault.cause;
  return std::isnan(fault.lost) ? cause : cause + "; " + short_number(fault.lost) + " s lost";
}

std::string troubles(const std::vector<RunRecord>& runs) {
  std::string rows;
  for (const RunRecord& run : runs) {
    for (std::size_t i = 1; i < run.starts.size(); ++i)
      rows += "<tr>" + cell(run.name) + cell("started again") + cell(time_text(run.starts[i].time)) +
              cell("from step " + std::to_string(run.starts[i].first_step)) + "</tr>\n";
    for (const Fault& fault : run.faults)
      rows += "<tr>" + cell(run.name) + cell("fault") + cell(time_text(fault.time)) + cell(told(fault)) + "</tr>\n";
  }
  if (rows.empty()) return "";
  return "<h2>Faults and restarts</h2><div class=\"wide\"><table><tr><th>run</th><th>what</th><th>when</th>"
         "<th></th></tr>\n" +
         rows + "</table></div>\n";
}

std::string checkpoints(const std::vector<RunRecord>& runs) {
  std::string rows;
  for (const RunRecord& run : runs)
    if (!run.saves.empty())
      rows += "<tr>" + cell(run.name) + cell(std::to_string(run.saves.size())) +
              cell(std::to_string(run.saves.back().step)) + cell(std::to_string(run.saves.back().skipped)) + "</tr>\n";
  if (rows.empty()) return "";
  return "<h2>Checkpoints</h2><div class=\"wide\"><table class=\"saves\"><tr><th>run</th><th>written</th><th>the last "
         "of "
         "step</th><th>left out while another was written</th></tr>\n" +
         rows + "</table></div>\n";
}

std::string best_checkpoints(const std::vector<RunRecord>& runs) {
  std::string rows;
  for (const RunRecord& run : runs)
    for (const auto& [name, value] : run.best_eval)
      rows += "<tr>" + cell(run.name) + cell(name) + number_cell(value) + "</tr>\n";
  if (rows.empty()) return "";
  return "<h2>Best checkpoint</h2><div class=\"wide\"><table>" + rows + "</table></div>\n";
}

}  // namespace

std::string html(const std::vector<RunRecord>& runs) {
  std::string title = runs.front().name;
  if (runs.size() > 1) title = std::to_string(runs.size()) + " runs";
  std::string text =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>Lockstep: " +
      escaped(title) + "</title><style>" + kStyle + colors() + "</style></head>\n<body><h1>" + escaped(title) +
      "</h1>\n" + summary(runs) + best_checkpoints(runs) + checkpoints(runs) + troubles(runs) +
      "<div class=\"charts\">\n" + charts(runs, &RunRecord::train, "train") + charts(runs, &RunRecord::eval, "eval");
  for (const RunRecord& run : runs) text += time_split(run);
  for (const RunRecord& run : runs) text += answers(run);
  return text + "</div></body></html>\n";
}

}  // namespace lockstep::page
