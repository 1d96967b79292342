#include "lockstep/metrics/tensorboard.h"

#include <filesystem>
#include <span>
#include <variant>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/metrics/protobuf.h"

namespace lockstep::metrics {
namespace {

constexpr std::string_view kNameStart = "events.out.tfevents.";
constexpr std::string_view kNameEnd = ".lockstep";

// Field numbers of event.proto and summary.proto.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
enum SummaryField { kValue = 1 };

// As frames of TFRecord have it: turned and moved, so that a checksum of data that holds checksums is not weak.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = base::crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string event_start(double time) {
  std::string message;
  protobuf::put_double(message, kWallTime, time);
  return message;
}

// The values of a summary at a step.
std::string event_message(double time, std::int64_t step, std::string_view summary) {
  std::string message = event_start(time);
  protobuf::put_integer(message, kStep, step);
  protobuf::put_bytes(message, kSummary, summary);
  return message;
}

void put_scalar(std::string& summary, const Event& event, const std::string& field) {
  protobuf::put_bytes(summary, kValue,
                      scalar_value(std::string(to_string(event.kind)) + "/" + field, event.number(field)));
}

std::string train_summary(const Event& event) {
  std::string summary;
  for (const char* field : {"loss", "lr"}) put_scalar(summary, event, field);
  for (const char* field : {"gradient_norm", "samples_per_second"})
    if (event.find(field) != nullptr) put_scalar(summary, event, field);
  return summary;
}

// Whatever was measured; step, epoch and samples are integers.
std::string eval_summary(const Event& event) {
  std::string summary;
  for (const auto& [name, value] : event.fields)
    if (std::holds_alternative<double>(value)) put_scalar(summary, event, name);
  if (summary.empty()) throw Error("[metrics] event 'eval' has no number to show");
  return summary;
}

// The accuracy of each class that has samples. More classes than a matrix has would hide the other curves.
std::string class_summary(const Event& event) {
  const auto* classes = std::get_if<std::vector<std::string>>(event.find("classes"));
  const auto* samples = std::get_if<std::vector<std::int64_t>>(event.find("class_samples"));
  const auto* right = std::get_if<std::vector<std::int64_t>>(event.find("class_right"));
  std::string summary;
  if (classes == nullptr || samples == nullptr || right == nullptr || event.find("confusion") == nullptr)
    return summary;
  for (std::size_t i = 0; i < classes->size(); ++i)
    if ((*samples)[i] > 0)
      protobuf::put_bytes(summary, kValue,
                          scalar_value("class_accuracy/" + (*classes)[i], double((*right)[i]) / double((*samples)[i])));
  return summary;
}

// Where it went on, in words: of a scalar nobody could see what it was.
std::string fault_summary(const Event& event) {
  std::string summary;
  const std::string cause = event.find("cause") != nullptr ? event.text("cause") : "not known of what";
  protobuf::put_bytes(summary, kValue, text_value("fault", cause));
  return summary;
}

const std::string& made(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw Error(directory + ": " + error.message());
  return directory;
}

}  // namespace

std::string tensorboard_file_name(double time) {
  return std::string(kNameStart) + std::to_string(static_cast<std::int64_t>(time)) + std::string(kNameEnd);
}

bool is_tensorboard_file_name(std::string_view name) {
  return name.size() > kNameStart.size() + kNameEnd.size() && name.starts_with(kNameStart) && name.ends_with(kNameEnd);
}

std::string tfrecord(std::string_view message) {
  std::string frame;
  protobuf::put_little_endian(frame, static_cast<std::uint64_t>(message.size()));
  protobuf::put_little_endian(frame, masked_crc(frame));
  frame += message;
  protobuf::put_little_endian(frame, masked_crc(message));
  return frame;
}

std::string tensorboard_version_message(double time) {
  std::string message = event_start(time);
  protobuf::put_bytes(message, kFileVersion, "brain.Event:2");
  return message;
}

std::string tensorboard_message(const Event& event) {
  if (event.kind == Kind::fault)
    return event_message(event.time, event.find("step") != nullptr ? event.integer("step") : 0, fault_summary(event));
  if (event.kind == Kind::answers) {
    const std::string summary = class_summary(event);
    return summary.empty() ? "" : event_message(event.time, event.integer("step"), summary);
  }
  if (event.kind != Kind::train && event.kind != Kind::eval) return "";
  if (event.find("best_on") != nullptr) return "";  // its step has a point
  const std::int64_t step = event.integer("step");
  return event_message(event.time, step, event.kind == Kind::train ? train_summary(event) : eval_summary(event));
}

TensorBoard::TensorBoard(const std::string& directory, double time, WhenRefused refused)
    : file_(directory + "/" + tensorboard_file_name(time)) {
  if (file_.is_new()) file_.append(tfrecord(tensorboard_version_message(time)));
  file_.when_refused(refused);
}

TensorBoard::TensorBoard(const std::string& directory) : TensorBoard(made(directory), seconds_now()) {}

void TensorBoard::write(const Event& event) {
  const std::string message = tensorboard_message(event);
  if (!message.empty()) file_.append(tfrecord(message));
}

void TensorBoard::add_scalar(std::string_view tag, double value, std::int64_t step) {
  add(scalar_value(tag, value), step);
}

void TensorBoard::add_image(std::string_view tag, const Pixels& pixels, std::int64_t step) {
  add(image_value(tag, pixels), step);
}

void TensorBoard::add_png(std::string_view tag, std::string_view file, std::int64_t step) {
  add(png_value(tag, file), step);
}

void TensorBoard::add_histogram(std::string_view tag, std::span<const double> values, std::int64_t step) {
  add(histogram_value(tag, histogram_of(values)), step);
}

void TensorBoard::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
  add(text_value(tag, text), step);
}

void TensorBoard::begin_hparams(const Hyperparameters& hparams) { add(hparams_start_value(hparams, seconds_now()), 0); }

void TensorBoard::end_hparams() { add(hparams_end_value(seconds_now()), 0); }

void TensorBoard::add(const std::string& value, std::int64_t step) {
  std::string summary;
  protobuf::put_bytes(summary, kValue, value);
  file_.append(tfrecord(event_message(seconds_now(), step, summary)));
}

}  // namespace lockstep::metrics
