#pragma once

// TensorBoard event files: TFRecord frames around protobuf Event messages, both written by
// hand. Format: tensorflow/core/util/event.proto, framework/summary.proto (summary.h) and lib/io/record_writer.h.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/metrics/line_file.h"
#include "lockstep/metrics/sink.h"
#include "lockstep/metrics/summary.h"

namespace lockstep::metrics {

/// "events.out.tfevents.<seconds>.lockstep": TensorBoard finds files by the part before the
/// number and reads them in order; --overwrite knows ours by the end.
std::string tensorboard_file_name(double time);
bool is_tensorboard_file_name(std::string_view name);

/// One frame: length, its masked CRC, the message, its masked CRC (all little endian).
std::string tfrecord(std::string_view message);

/// The first message of a file.
std::string tensorboard_version_message(double time);

/// The scalars of a train event (train/loss, train/lr, train/samples_per_second where it has one) or an eval
/// event (each of its fields that is a real number, eval/loss for instance) at its `step`; of an answers event the
/// accuracy of each class (class_accuracy/NAME) where it has a matrix; "" for other kinds.
/// TensorBoard keeps scalars as 32-bit floats. Throws Error when a field is missing, or an eval event has no number.
std::string tensorboard_message(const Event& event);

/// An event file, for the events of a run and for whatever else a program wants to see. Make one on one rank only. Each
/// call is in the file when it returns. Not thread-safe. Tensors become pixels and values by evaluation/tensors.h:
///
///   lockstep::metrics::TensorBoard board("runs/today");
///   board.add_scalar("lr", 0.1, step);
///   board.add_image("first", lockstep::pixels(batch.data[0]), step);
///   board.add_histogram("fc1.weight", lockstep::values(model->fc1->weight), step);
class TensorBoard : public Sink {
 public:
  /// Makes `directory`/tensorboard_file_name(time). Errors: see LineFile, also of what the disk refuses behind the
  /// file's first message.
  TensorBoard(const std::string& directory, double time, WhenRefused refused = WhenRefused::throws);
  /// The same now, and the folder with its parents where there is none.
  explicit TensorBoard(const std::string& directory);

  void write(const Event& event) override;

  /// A point of the curve `tag`. `step` counts as the program does.
  void add_scalar(std::string_view tag, double value, std::int64_t step);
  /// UsageError when size, channels and values do not agree.
  void add_image(std::string_view tag, const Pixels& pixels, std::int64_t step);
  /// The bytes of a PNG file. UsageError when they are none.
  void add_png(std::string_view tag, std::string_view file, std::int64_t step);
  /// UsageError when there are no values or one is not finite.
  void add_histogram(std::string_view tag, std::span<const double> values, std::int64_t step);
  /// Markdown.
  void add_text(std::string_view tag, std::string_view text, std::int64_t step);
  /// The run's place in the hparams plugin: once at its start, and once at its end, when that was a good one.
  void begin_hparams(const Hyperparameters& hparams);
  void end_hparams();

 private:
  void add(const std::string& value, std::int64_t step);

  LineFile file_;
};

}  // namespace lockstep::metrics
