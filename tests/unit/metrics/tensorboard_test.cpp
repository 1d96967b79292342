#include "lockstep/metrics/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/metrics/crc32c.h"
#include "sample_events.h"

namespace lockstep::metrics {
namespace {

// RFC 3720, appendix B.4, and the check value of the CRC catalogue.
TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising.push_back(static_cast<char>(i));
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
}

/// Independent of the writer: bit by bit instead of by table.
std::uint32_t slow_masked_crc(const std::string& bytes) {
  std::uint32_t crc = 0xffffffff;
  for (unsigned char byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <class T>
T take(std::string& bytes) {
  if (bytes.size() < sizeof(T)) throw std::runtime_error("cut off");
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.erase(0, sizeof(T));
  return value;
}

std::string take_bytes(std::string& bytes, std::uint64_t size) {
  if (bytes.size() < size) throw std::runtime_error("cut off");
  std::string taken = bytes.substr(0, size);
  bytes.erase(0, size);
  return taken;
}

std::vector<std::string> read_frames(std::string bytes) {
  std::vector<std::string> messages;
  while (!bytes.empty()) {
    const std::string header = bytes.substr(0, 8);
    const auto size = take<std::uint64_t>(bytes);
    EXPECT_EQ(take<std::uint32_t>(bytes), slow_masked_crc(header));
    messages.push_back(take_bytes(bytes, size));
    EXPECT_EQ(take<std::uint32_t>(bytes), slow_masked_crc(messages.back()));
  }
  return messages;
}

std::uint64_t take_varint(std::string& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<unsigned char>(bytes);
    value |= std::uint64_t(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

/// field number -> raw values, in order; fixed and varint values as their 8 bytes.
std::multimap<int, std::string> parse_message(std::string bytes) {
  std::multimap<int, std::string> fields;
  while (!bytes.empty()) {
    const std::uint64_t key = take_varint(bytes);
    std::string value;
    switch (key & 7) {
      case 0: {
        const std::uint64_t number = take_varint(bytes);
        value.assign(reinterpret_cast<const char*>(&number), sizeof(number));
        break;
      }
      case 1:
        value = take_bytes(bytes, 8);
        break;
      case 2:
        value = take_bytes(bytes, take_varint(bytes));
        break;
      case 5:
        value = take_bytes(bytes, 4);
        break;
      default:
        throw std::runtime_error("wire type");
    }
    fields.emplace(static_cast<int>(key >> 3), value);
  }
  return fields;
}

std::string only(const std::multimap<int, std::string>& fields, int number) {
  EXPECT_EQ(fields.count(number), 1u) << "field " << number;
  return fields.count(number) == 1 ? fields.find(number)->second : "";
}

std::map<std::string, float> scalars(const std::multimap<int, std::string>& event) {
  std::map<std::string, float> found;
  for (const auto& [number, bytes] : parse_message(only(event, 5))) {
    EXPECT_EQ(number, 1);
    const auto value = parse_message(bytes);
    std::string raw = only(value, 2);
    found[only(value, 1)] = take<float>(raw);
  }
  return found;
}

TEST(TensorBoard, AnIndependentReaderFindsVersionStepsAndScalars) {
  TemporaryFolder folder;
  {
    TensorBoard sink(folder.path(), 999.5);
    for (const Event& event : {train_event(), done_event(), eval_event()}) sink.write(event);
  }
  const auto messages = read_frames(read_all(folder.file("events.out.tfevents.999.lockstep")));
  ASSERT_EQ(messages.size(), 3u);
  const auto version = parse_message(messages[0]);
  EXPECT_EQ(only(version, 3), "brain.Event:2");
  std::string time = only(version, 1);
  EXPECT_EQ(take<double>(time), 999.5);

  const auto train = parse_message(messages[1]);
  std::string step = only(train, 2);
  EXPECT_EQ(take<std::uint64_t>(step), 300u);
  time = only(train, 1);
  EXPECT_EQ(take<double>(time), 1000.25);
  EXPECT_EQ(scalars(train), (std::map<std::string, float>{
                                {"train/loss", 0.1f}, {"train/lr", 1e-4f}, {"train/samples_per_second", 12345.678f}}));
  EXPECT_EQ(scalars(parse_message(messages[2])),
            (std::map<std::string, float>{{"eval/loss", 1.0f / 3}, {"eval/top1", 0.9875f}}));
}

TEST(TensorBoard, AMissingFieldIsAnError) {
  EXPECT_THROW(tensorboard_message({.kind = Kind::eval, .time = 1, .fields = {{"step", std::int64_t(1)}}}), Error);
  EXPECT_EQ(tensorboard_message(done_event()), "");
}

TEST(TensorBoard, OursAreToldFromOthersByName) {
  EXPECT_TRUE(is_tensorboard_file_name(tensorboard_file_name(1700000000.9)));
  EXPECT_EQ(tensorboard_file_name(1700000000.9), "events.out.tfevents.1700000000.lockstep");
  EXPECT_FALSE(is_tensorboard_file_name("events.out.tfevents.1700000000.host.12.0"));
  EXPECT_FALSE(is_tensorboard_file_name("x.lockstep"));
  EXPECT_FALSE(is_tensorboard_file_name("events.out.tfevents.lockstep"));
}

}  // namespace
}  // namespace lockstep::metrics
