#include "benchmarks/input/input_report.h"

#include <nlohmann/json.hpp>

#include "benchmarks/support/output.h"
#include "benchmarks/support/statistics.h"

namespace lockstep::bench {
namespace {

double median(const Rates& contender) { return spread_of(contender.rates).median; }

}  // namespace

std::string to_text(const InputReport& report) {
  const auto& [input, options, peer, contenders, waiting, split] = report;
  std::string out =
      input.about + "; transforms: " + input.transforms + ", batches of " + std::to_string(options.batch_size) + "\n";
  if (!peer.empty()) out += "beside " + peer + "\n";
  out += "\n";
  const double ours = median(contenders.front());
  for (const Rates& contender : contenders) {
    const Spread rate = spread_of(contender.rates);
    out +=
        text("%-48s %10.0f pictures/s   (p10 %.0f, p90 %.0f)", contender.name.c_str(), rate.median, rate.p10, rate.p90);
    out += &contender == &contenders.front() ? "\n" : text("   lockstep is %.1fx\n", ours / rate.median);
  }
  const double whole = split.get + split.transform + split.normalize;
  const auto part = [&](const char* name, double seconds) {
    return text("  %-10s %9.2f us  %3.0f %%\n", name, seconds * 1e6, 100 * seconds / whole);
  };
  out += text("\na picture in one thread: %.2f us\n", whole * 1e6);
  out += part("get", split.get) + part("transform", split.transform) + part("normalize", split.normalize);
  out += text("the consumer, which does nothing else, waited %.0f %% of the time\n", 100 * waiting);
  return out;
}

std::string to_json(const InputReport& report) {
  using nlohmann::ordered_json;
  ordered_json contenders = ordered_json::array();
  for (const Rates& contender : report.contenders) {
    contenders.push_back({{"name", contender.name}, {"kind", contender.kind}, {"rates", contender.rates}});
  }
  const auto& [get, transform, normalize] = report.split;
  const ordered_json whole = {{"set", report.input.about},
                              {"kind", report.input.kind},
                              {"transforms", report.input.transforms},
                              {"batch_size", report.options.batch_size},
                              {"workers", report.options.workers},
                              {"peer", report.peer},
                              {"contenders", contenders},
                              {"waiting", report.waiting},
                              {"split_seconds", {{"get", get}, {"transform", transform}, {"normalize", normalize}}}};
  return whole.dump() + "\n";
}

}  // namespace lockstep::bench
