#include "lockstep/metrics/tensorboard.h"

#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "sample_events.h"

namespace lockstep::metrics {
namespace {

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

TEST(TensorBoard, EachClassHasItsAccuracy) {
  Event event{.kind = Kind::answers,
              .time = 2,
              .fields = {{"step", std::int64_t(5)},
                         {"classes", std::vector<std::string>{"cat", "dog", "none"}},
                         {"confusion", std::vector<std::int64_t>{}},
                         {"class_samples", std::vector<std::int64_t>{4, 2, 0}},
                         {"class_right", std::vector<std::int64_t>{3, 2, 0}}}};
  EXPECT_EQ(scalars(parse_message(tensorboard_message(event))),
            (std::map<std::string, float>{{"class_accuracy/cat", 0.75f}, {"class_accuracy/dog", 1.0f}}));
  EXPECT_EQ(tensorboard_message(without(event, "confusion")), "") << "too many classes";
}

// Readers would refuse the whole record.
TEST(TensorBoard, BytesThatAreNoTextAreReplaced) {
  const std::string bad =
                        "a\xff"
                        "b",
                    good =
                        "a\xEF\xBF\xBD"
                        "b";
  EXPECT_EQ(scalar_value(bad, 1), scalar_value(good, 1));
  EXPECT_EQ(text_value(bad, bad), text_value(good, good));
  EXPECT_EQ(hparams_start_value({{bad, bad}}, 1), hparams_start_value({{good, good}}, 1));
  EXPECT_EQ(only(parse_message(scalar_value("caf\xc3\xa9", 1)), 1), "caf\xc3\xa9");
}

// As plugins/hparams/plugin_data.proto has it; Python's reader is in tests/parity.
TEST(TensorBoard, HyperparametersAreThoseOfThePlugin) {
  const auto session = [](const std::string& value, const char* tag, int field) {
    const auto message = parse_message(value);
    EXPECT_EQ(only(message, 1), tag);
    const auto plugin = parse_message(only(parse_message(only(message, 9)), 1));
    EXPECT_EQ(only(plugin, 1), "hparams");
    return parse_message(only(parse_message(only(plugin, 2)), field));
  };
  const auto start = session(hparams_start_value({{"fuse", true}}, 2.5), "_hparams_/session_start_info", 3);
  const auto entry = parse_message(only(start, 1));
  EXPECT_EQ(only(entry, 1), "fuse");
  std::string time = only(start, 5);
  EXPECT_EQ(take<double>(time), 2.5);
  std::string status = only(session(hparams_end_value(3), "_hparams_/session_end_info", 4), 1);
  EXPECT_EQ(take<std::uint64_t>(status), 1u);
}

// The cause as a text, where the job went on.
TEST(TensorBoard, AFaultIsAText) {
  const Event event{
      .kind = Kind::fault,
      .time = 2,
      .fields = {{"restart_count", std::int64_t(1)}, {"step", std::int64_t(5)}, {"cause", std::string("why")}}};
  const std::string message = tensorboard_message(event);
  std::string step = only(parse_message(message), 2);
  EXPECT_EQ(take<std::uint64_t>(step), 5u);
  EXPECT_NE(message.find("fault/text_summary"), std::string::npos);
  EXPECT_NE(message.find("why"), std::string::npos);
}

// What the messages after the version hold, each the only value of a summary.
std::vector<std::multimap<int, std::string>> values_in(const std::string& folder) {
  std::vector<std::multimap<int, std::string>> values;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    for (const std::string& message : read_frames(read_all(entry.path().string()))) {
      const auto event = parse_message(message);
      if (event.contains(5)) values.push_back(parse_message(only(parse_message(only(event, 5)), 1)));
    }
  return values;
}

std::uint64_t number_of(const std::multimap<int, std::string>& fields, int number) {
  std::string raw = only(fields, number);
  return take<std::uint64_t>(raw);
}

double double_of(const std::multimap<int, std::string>& fields, int number) {
  std::string raw = only(fields, number);
  return take<double>(raw);
}

std::vector<double> doubles_of(const std::multimap<int, std::string>& fields, int number) {
  std::vector<double> found;
  for (std::string raw = only(fields, number); !raw.empty();) found.push_back(take<double>(raw));
  return found;
}

TEST(TensorBoard, ShowsWhatAProgramAdds) {
  TemporaryFolder folder;
  const std::string path = folder.file("runs/today");
  {
    TensorBoard board(path);
    board.add_scalar("loss/all", 0.25, 7);
    board.add_text("notes", "**bold**", 8);
  }
  const auto values = values_in(path);
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(only(values[0], 1), "loss/all");
  std::string raw = only(values[0], 2);
  EXPECT_EQ(take<float>(raw), 0.25f);
  EXPECT_EQ(only(values[1], 1), "notes/text_summary");
  const auto tensor = parse_message(only(values[1], 8));
  EXPECT_EQ(number_of(tensor, 1), 7u) << "DT_STRING";
  EXPECT_EQ(number_of(parse_message(only(parse_message(only(tensor, 2)), 2)), 1), 1u) << "one text";
  EXPECT_EQ(only(tensor, 8), "**bold**");
  EXPECT_EQ(only(parse_message(only(parse_message(only(values[1], 9)), 1)), 1), "text");
}

TEST(TensorBoard, TimeAndStepOfWhatAProgramAdds) {
  TemporaryFolder folder;
  const double before = seconds_now();
  TensorBoard(folder.path()).add_scalar("x", 1, 41);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const auto event = parse_message(read_frames(read_all(entry.path().string())).at(1));
    EXPECT_EQ(number_of(event, 2), 41u);
    EXPECT_GE(double_of(event, 1), before);
    EXPECT_LE(double_of(event, 1), seconds_now());
  }
}

TEST(TensorBoard, PicturesAreWholePngFiles) {
  for (const int channels : {1, 3, 4}) {
    Pixels pixels{.height = 5, .width = 7, .channels = channels, .values = {}};
    for (int i = 0; i < 5 * 7 * channels; ++i) pixels.values.push_back(std::uint8_t(i * 37));
    TemporaryFolder folder;
    TensorBoard(folder.path()).add_image("digits", pixels, 1);
    const auto image = parse_message(only(values_in(folder.path()).at(0), 4));
    EXPECT_EQ(number_of(image, 1), 5u);
    EXPECT_EQ(number_of(image, 2), 7u);
    EXPECT_EQ(number_of(image, 3), std::uint64_t(channels));
    const std::string file = only(image, 4);
    png_image png{};
    png.version = PNG_IMAGE_VERSION;
    ASSERT_NE(png_image_begin_read_from_memory(&png, file.data(), file.size()), 0) << png.message;
    EXPECT_EQ(png.format, unsigned(channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA));
    std::vector<std::uint8_t> read(PNG_IMAGE_SIZE(png));
    ASSERT_NE(png_image_finish_read(&png, nullptr, read.data(), 0, nullptr), 0) << png.message;
    EXPECT_EQ(read, pixels.values);
  }
}

TEST(TensorBoard, PngFilesStayAsTheyAre) {
  for (const int channels : {1, 3, 4}) {
    Pixels pixels{.height = 3, .width = 2, .channels = channels, .values = {}};
    for (int i = 0; i < 3 * 2 * channels; ++i) pixels.values.push_back(std::uint8_t(i * 5));
    EXPECT_EQ(png_value("x", png_file(pixels)), image_value("x", pixels));
    TemporaryFolder folder;
    TensorBoard(folder.path()).add_png("mistakes/1", png_file(pixels), 1);
    const auto value = values_in(folder.path()).at(0);
    EXPECT_EQ(only(value, 1), "mistakes/1");
    EXPECT_EQ(only(parse_message(only(value, 4)), 4), png_file(pixels));
  }
}

TEST(TensorBoard, PicturesThatAreNoneAreRefused) {
  EXPECT_THROW(png_value("x", "GIF89a"), UsageError);
  EXPECT_THROW(png_value("x", ""), UsageError);
  EXPECT_THROW(image_value("x", {.height = 2, .width = 2, .channels = 3, .values = std::vector<std::uint8_t>(11)}),
               UsageError);
  EXPECT_THROW(image_value("x", {.height = 2, .width = 2, .channels = 2, .values = std::vector<std::uint8_t>(8)}),
               UsageError);
  EXPECT_THROW(image_value("x", {.height = 0, .width = 2, .channels = 1, .values = {}}), UsageError);
}

// The edges are 1.1^k times 1e-12; make_histogram() of PyTorch's SummaryWriter has an empty bucket on the left, too.
TEST(TensorBoard, HistogramsHaveTheBucketsOfPyTorch) {
  TemporaryFolder folder;
  const std::vector<double> values = {0.5, -0.5, 0, 0.5, 2};
  TensorBoard(folder.path()).add_histogram("fc1.weight", values, 1);
  const auto histo = parse_message(only(values_in(folder.path()).at(0), 5));
  EXPECT_EQ(double_of(histo, 1), -0.5);
  EXPECT_EQ(double_of(histo, 2), 2);
  EXPECT_EQ(double_of(histo, 3), 5);
  EXPECT_EQ(double_of(histo, 4), 2.5);
  EXPECT_EQ(double_of(histo, 5), 4.75);
  const std::vector<double> limits = doubles_of(histo, 6), buckets = doubles_of(histo, 7);
  ASSERT_EQ(limits.size(), buckets.size());
  EXPECT_EQ(buckets.front(), 0);
  EXPECT_EQ(buckets.at(1), 1) << "-0.5 is in the first that has any";
  EXPECT_LE(limits.front(), -0.5);
  EXPECT_GT(limits.back(), 2);
  EXPECT_LT(limits.at(limits.size() - 2), 2 * (1 + 1e-9));
  double counted = 0;
  for (std::size_t i = 1; i < limits.size(); ++i) {
    EXPECT_LT(limits[i - 1], limits[i]);
    const auto inside = [&](double value) { return limits[i - 1] <= value && value < limits[i]; };
    EXPECT_EQ(buckets[i], double(std::count_if(values.begin(), values.end(), inside))) << i;
    counted += buckets[i];
    if (limits[i - 1] > 1e-9) {
      EXPECT_NEAR(limits[i] / limits[i - 1], 1.1, 1e-12);
    }
  }
  EXPECT_EQ(counted, 5);
}

TEST(TensorBoard, HistogramsOfNothingAreRefused) {
  EXPECT_THROW(histogram_of({}), UsageError);
  const std::vector<double> odd = {1, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_THROW(histogram_of(odd), UsageError);
  const std::vector<double> huge = {-1e300, 1e300};
  EXPECT_EQ(histogram_of(huge).count, 2) << "they are in the outermost buckets";
}

// Of any task: mean errors, shares, whatever an evaluation is told to have found.
TEST(TensorBoard, EveryNumberOfAnEvaluationIsAScalar) {
  const Event event{.kind = Kind::eval,
                    .time = 1,
                    .fields = {{"step", std::int64_t(4)}, {"rmse", 0.5}, {"samples", std::int64_t(9)}}};
  EXPECT_EQ(scalars(parse_message(tensorboard_message(event))), (std::map<std::string, float>{{"eval/rmse", 0.5f}}));
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
