#include "benchmarks/step/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "benchmarks/support/output.h"
#include "benchmarks/support/statistics.h"
#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

using nlohmann::ordered_json;

// The contender of these kinds with the smallest median; copies all move the same bytes.
const Timings& best(const Section& section, std::initializer_list<const char*> kinds) {
  const Timings* found = nullptr;
  for (const Timings& timings : section.timings)
    if (std::find(kinds.begin(), kinds.end(), timings.kind) != kinds.end() &&
        (found == nullptr || spread_of(timings.seconds).median < spread_of(found->seconds).median))
      found = &timings;
  if (found == nullptr) throw Error("benchmark: no contender of kind " + std::string(*kinds.begin()));
  return *found;
}

double median(const Timings& timings) { return spread_of(timings.seconds).median; }

ordered_json to_json(const Timings& timings) {
  return {{"name", timings.name},
          {"kind", timings.kind},
          {"page_size", timings.page_size},
          {"bytes", timings.bytes},
          {"seconds", timings.seconds}};
}

ordered_json to_json(const Machine& machine) {
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"kernel", machine.kernel},
          {"load", machine.load}};
}

std::string row(const Timings& timings, const Verdict& verdict) {
  const Spread ms = spread_of(timings.seconds);
  const double rate = timings.bytes / ms.median;
  const std::string bandwidth =
      timings.bytes == 0 ? "| |" : text("%.1f | %.0f %% |", rate / 1e9, 100 * rate / verdict.copy_rate);
  return text("| %s | %s | %.2f | %.2f-%.2f | %.2f | ", timings.name.c_str(), timings.page_size.c_str(),
              ms.median * 1e3, ms.p10 * 1e3, ms.p90 * 1e3, ms.median / verdict.step) +
         bandwidth + "\n";
}

std::string section_text(const Section& section) {
  const Verdict verdict = verdict_of(section);
  std::string out = text("\n## %.1f M weights (%s), %s\n\n", double(section.weights) / 1e6, section.model.c_str(),
                         section.optimizer.c_str());
  out += text(
      "`optimizer.step()` %.2f ms: %.0f %% of the copy bandwidth (%.1f of %.1f GB/s by state bytes), "
      "%.1f times as fast as Gloo + torch::optim at its best setting, %.1f times as fast as the fastest peer.\n\n",
      verdict.step * 1e3, 100 * verdict.step_rate / verdict.copy_rate, verdict.step_rate / 1e9, verdict.copy_rate / 1e9,
      verdict.over_installed, verdict.over_peer);
  out += "| contender | pages used | median ms | p10-p90 ms | times step() | GB/s | of the best copy |\n";
  out += "|---|---|---:|---:|---:|---:|---:|\n";
  for (const Timings& timings : section.timings) out += row(timings, verdict);
  return out;
}

std::string summary(const std::vector<Section>& sections) {
  std::string out =
      "| weights | optimizer | step() ms | of the copy bandwidth | times Gloo + torch::optim | times the fastest peer "
      "|\n"
      "|---|---|---:|---:|---:|---:|\n";
  for (const Section& section : sections) {
    const Verdict verdict = verdict_of(section);
    out += text("| %.1f M (%s) | %s | %.2f | %.0f %% | %.1f | %.1f |\n", double(section.weights) / 1e6,
                section.model.c_str(), section.optimizer.c_str(), verdict.step * 1e3,
                100 * verdict.step_rate / verdict.copy_rate, verdict.over_installed, verdict.over_peer);
  }
  return out;
}

}  // namespace

Verdict verdict_of(const Section& section) {
  const Timings& step = best(section, {"ours"});
  const Timings& copy = best(section, {"floor"});
  return {.step = median(step),
          .step_rate = step.bytes / median(step),
          .copy_rate = copy.bytes / median(copy),
          .over_installed = median(best(section, {"installed"})) / median(step),
          .over_peer = median(best(section, {"installed", "tuned"})) / median(step)};
}

std::string to_markdown(const Report& report) {
  const Machine& m = report.machine;
  std::string out = "# Reduce + update\n\n";
  out += text(
      "Weights in the shapes of models, float32, %d processes with one computing thread each. A turn reduces the "
      "gradients of all ranks and steps the optimizer; fresh gradients are put in place before it, the clock runs "
      "from the first rank's start to the last rank's end. All contenders of a section took turns in one run, %d "
      "rounds after %d to warm up.\n\n",
      report.ranks, report.rounds.measured, report.rounds.warmup);
  out += text("- machine: %s, %d cores, %.1f GiB memory, Linux %s, load %.2f before\n", m.cpu.c_str(), m.cores,
              double(m.memory_bytes) / (1 << 30), m.kernel.c_str(), m.load);
  out += "- instruction set of the kernel: " + report.instruction_set + "\n";
  out += "- commit: " + report.commit + "\n- command: `" + report.command + "`\n\n";
  out +=
      "State bytes of a step: every gradient slot read, weights and optimizer state read and written. A copy "
      "counts what it reads and what it writes.\n";
  out += "\n" + summary(report.sections);
  for (const Section& section : report.sections) out += section_text(section);
  return out;
}

std::string to_json(const Report& report) {
  ordered_json sections = ordered_json::array();
  for (const Section& section : report.sections) {
    const Verdict verdict = verdict_of(section);
    ordered_json contenders = ordered_json::array();
    for (const Timings& timings : section.timings) contenders.push_back(to_json(timings));
    sections.push_back({{"model", section.model},
                        {"weights", section.weights},
                        {"optimizer", section.optimizer},
                        {"step_seconds", verdict.step},
                        {"step_bytes_per_second", verdict.step_rate},
                        {"copy_bytes_per_second", verdict.copy_rate},
                        {"over_installed", verdict.over_installed},
                        {"over_peer", verdict.over_peer},
                        {"contenders", contenders}});
  }
  const ordered_json all{{"benchmark", "reduce-update"},
                         {"machine", to_json(report.machine)},
                         {"commit", report.commit},
                         {"command", report.command},
                         {"instruction_set", report.instruction_set},
                         {"ranks", report.ranks},
                         {"rounds", report.rounds.measured},
                         {"warmup", report.rounds.warmup},
                         {"sections", sections}};
  return all.dump(1) + "\n";
}

std::string serialize(const Section& section) {
  ordered_json timings = ordered_json::array();
  for (const Timings& t : section.timings) timings.push_back(to_json(t));
  return ordered_json{
      {"optimizer", section.optimizer}, {"timings", timings}, {"model", section.model}, {"weights", section.weights}}
      .dump();
}

Section deserialize(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Section section{json.at("optimizer").get<std::string>(),
                  {},
                  json.at("model").get<std::string>(),
                  json.at("weights").get<std::int64_t>()};
  for (const auto& t : json.at("timings"))
    section.timings.push_back({t.at("name").get<std::string>(), t.at("kind").get<std::string>(),
                               t.at("page_size").get<std::string>(), t.at("bytes").get<double>(),
                               t.at("seconds").get<std::vector<double>>()});
  return section;
}

}  // namespace lockstep::bench
