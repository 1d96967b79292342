#include "lockstep/metrics/tensorboard.h"

#include <bit>
#include <cstdint>

#include "lockstep/metrics/crc32c.h"

namespace lockstep::metrics {
namespace {

constexpr std::string_view kNameStart = "events.out.tfevents.";
constexpr std::string_view kNameEnd = ".lockstep";

// Field numbers of event.proto and summary.proto.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
enum SummaryField { kValue = 1 };
enum ValueField { kTag = 1, kSimpleValue = 2 };
// Wire types of protobuf.
enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class Unsigned>
void put_little_endian(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(value); ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_key(std::string& out, int field, Wire wire) { put_varint(out, static_cast<std::uint64_t>(field) << 3 | wire); }

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_start(double time) {
  std::string message;
  put_key(message, kWallTime, kFixed64);
  put_little_endian(message, std::bit_cast<std::uint64_t>(time));
  return message;
}

void put_scalar(std::string& summary, const Event& event, const std::string& field) {
  std::string value;
  put_bytes(value, kTag, std::string(to_string(event.kind)) + "/" + field);
  put_key(value, kSimpleValue, kFixed32);
  put_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(event.number(field))));
  put_bytes(summary, kValue, value);
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
  put_little_endian(frame, static_cast<std::uint64_t>(message.size()));
  put_little_endian(frame, masked_crc32c(frame));
  frame += message;
  put_little_endian(frame, masked_crc32c(message));
  return frame;
}

std::string tensorboard_version_message(double time) {
  std::string message = event_start(time);
  put_bytes(message, kFileVersion, "brain.Event:2");
  return message;
}

std::string tensorboard_message(const Event& event) {
  std::string summary;
  if (event.kind == Kind::train) {
    for (const char* field : {"loss", "lr"}) put_scalar(summary, event, field);
    if (event.find("samples_per_second") != nullptr) put_scalar(summary, event, "samples_per_second");
  } else if (event.kind == Kind::eval) {
    for (const char* field : {"loss", "top1"}) put_scalar(summary, event, field);
  } else {
    return "";
  }
  std::string message = event_start(event.time);
  put_key(message, kStep, kVarint);
  put_varint(message, static_cast<std::uint64_t>(event.integer("step")));
  put_bytes(message, kSummary, summary);
  return message;
}

TensorBoard::TensorBoard(const std::string& directory, double time)
    : file_(directory + "/" + tensorboard_file_name(time)) {
  if (file_.is_new()) file_.append(tfrecord(tensorboard_version_message(time)));
}

void TensorBoard::write(const Event& event) {
  const std::string message = tensorboard_message(event);
  if (!message.empty()) file_.append(tfrecord(message));
}

}  // namespace lockstep::metrics
