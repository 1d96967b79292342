#include "lockstep/metrics/csv.h"

namespace lockstep::metrics {
namespace {

std::string whole(const Event& event, const char* name) { return std::to_string(event.integer(name)); }
std::string real(const Event& event, const char* name) { return shortest(event.number(name)); }
std::string real_if_there(const Event& event, const char* name) { return event.find(name) ? real(event, name) : ""; }

}  // namespace

std::string csv_row(const Event& event) {
  if ((event.kind != Kind::train && event.kind != Kind::eval) || event.find("best_on") != nullptr) return "";
  const std::string start = std::string(to_string(event.kind)) + "," + shortest(event.time) + "," +
                            whole(event, "step") + "," + whole(event, "epoch") + ",";
  if (event.kind == Kind::train)
    return start + real(event, "loss") + "," + real(event, "lr") + "," + real_if_there(event, "samples_per_second") +
           ",,,,,,,,,,," + real_if_there(event, "gradient_norm");
  std::string row =
      start + real_if_there(event, "loss") + ",,," + real_if_there(event, "top1") + "," + whole(event, "samples");
  for (const char* name : {"mae", "r2", "ema_loss", "ema_top1", "ema_mae", "ema_r2", "top5", "ema_top5"})
    row += "," + real_if_there(event, name);
  return row + ",";
}

Csv::Csv(std::string path, WhenRefused refused) : file_(LineFile::of_lines(std::move(path))) {
  if (file_.is_new()) file_.append(std::string(kCsvHeader) + "\n");
  file_.when_refused(refused);
}

void Csv::write(const Event& event) {
  const std::string row = csv_row(event);
  if (!row.empty()) file_.append(row + "\n");
}

}  // namespace lockstep::metrics
