#pragma once

// TensorBoard event files: TFRecord frames around protobuf Event messages, both written by
// hand; of the messages only scalars are needed. Format: tensorflow/core/util/event.proto,
// framework/summary.proto and lib/io/record_writer.h.

#include <string>
#include <string_view>

#include "lockstep/metrics/line_file.h"
#include "lockstep/metrics/sink.h"

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
/// event (eval/loss, eval/top1) at its `step`; "" for other kinds. TensorBoard keeps scalars
/// as 32-bit floats. Throws Error when a field is missing.
std::string tensorboard_message(const Event& event);

/// Makes `directory`/tensorboard_file_name(time). Errors: see LineFile.
class TensorBoard : public Sink {
 public:
  TensorBoard(const std::string& directory, double time);
  void write(const Event& event) override;

 private:
  LineFile file_;
};

}  // namespace lockstep::metrics
