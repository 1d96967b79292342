#pragma once

// metrics.csv: the train and eval events as a table for spreadsheets and plots.

#include <string>

#include "lockstep/metrics/line_file.h"
#include "lockstep/metrics/sink.h"

namespace lockstep::metrics {

/// The columns of every row; a column that an event has not stays empty.
inline constexpr const char* kCsvHeader =
    "event,time,step,epoch,loss,lr,samples_per_second,top1,samples,mae,r2,ema_loss,ema_top1,ema_mae,ema_r2,"
    "top5,ema_top5,gradient_norm";

/// The event as a row without its line end; "" for the kinds that have no row. Numbers as
/// in metrics.jsonl. Throws Error when a field is missing that its kind must have.
std::string csv_row(const Event& event);

/// Appends to `path`, the header first when the file is new. Errors: see LineFile, also of what the disk refuses behind
/// the header.
class Csv : public Sink {
 public:
  explicit Csv(std::string path, WhenRefused refused = WhenRefused::throws);
  void write(const Event& event) override;

 private:
  LineFile file_;
};

}  // namespace lockstep::metrics
