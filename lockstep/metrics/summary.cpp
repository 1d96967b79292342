#include "lockstep/metrics/summary.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/metrics/protobuf.h"

namespace lockstep::metrics {
namespace {

using protobuf::put_bytes;
using protobuf::put_double;
using protobuf::put_float;
using protobuf::put_integer;
using protobuf::put_packed;

// Field numbers of summary.proto, tensor.proto and tensor_shape.proto.
enum ValueField { kTag = 1, kSimpleValue = 2, kImage = 4, kHisto = 5, kTensor = 8, kMetadata = 9 };
enum ImageField { kHeight = 1, kWidth = 2, kColorspace = 3, kEncodedImage = 4 };
enum HistogramField { kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kBucketLimit = 6, kBucket = 7 };
enum TensorField { kDtype = 1, kShape = 2, kStringValue = 8 };
enum ShapeField { kDim = 2 };
enum DimField { kSize = 1 };
enum MetadataField { kPluginData = 1 };
enum PluginField { kPluginName = 1, kContent = 2 };
// Of plugins/hparams/plugin_data.proto, and struct.proto.
enum HparamsField { kSessionStart = 3, kSessionEnd = 4 };
enum SessionStartField { kHparams = 1, kStartTime = 5 };
enum SessionEndField { kStatus = 1, kEndTime = 2 };
enum EntryField { kKey = 1, kEntryValue = 2 };
enum WrappedField { kNumber = 2, kText = 3, kYes = 4 };
constexpr int kSuccess = 1;
constexpr int kDtString = 7;

// Readers refuse a whole record for one string that is no UTF-8; each wrong byte becomes U+FFFD.
void put_text(std::string& out, int field, std::string_view text) {
  using nlohmann::json;
  const std::string quoted = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  put_bytes(out, field, json::parse(quoted).get<std::string>());
}

std::string tagged(std::string_view tag) {
  std::string value;
  put_text(value, kTag, tag);
  return value;
}

// 1e-12, 1.1e-12, … as PyTorch and TensorFlow count them: by repeated multiplication.
std::vector<double> positive_edges() {
  std::vector<double> edges;
  for (double edge = 1e-12; edge < 1e20; edge *= 1.1) edges.push_back(edge);
  return edges;
}

const std::vector<double>& all_edges() {
  static const std::vector<double> edges = [] {
    const std::vector<double> positive = positive_edges();
    std::vector<double> all;
    for (auto edge = positive.rbegin(); edge != positive.rend(); ++edge) all.push_back(-*edge);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
  }();
  return edges;
}

// The bucket from edges[i] to edges[i + 1] has number i; its lower edge belongs to it, as numpy.histogram has it. What
// lies outside all edges goes to the outermost.
std::size_t bucket_of(double value) {
  const std::vector<double>& edges = all_edges();
  const auto above = std::upper_bound(edges.begin(), edges.end(), value);
  const std::ptrdiff_t bucket = above - edges.begin() - 1;
  return static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(bucket, 0, std::ssize(edges) - 2));
}

void check(const Pixels& pixels) {
  const bool known = pixels.channels == 1 || pixels.channels == 3 || pixels.channels == 4;
  if (!known || pixels.height < 1 || pixels.width < 1)
    throw UsageError("image: " + std::to_string(pixels.height) + " x " + std::to_string(pixels.width) + " pixels of " +
                     std::to_string(pixels.channels) + " channels; at least 1 x 1 of 1, 3 or 4 are needed");
  const std::size_t needed = std::size_t(pixels.height) * std::size_t(pixels.width) * std::size_t(pixels.channels);
  if (pixels.values.size() != needed)
    throw UsageError("image: " + std::to_string(pixels.values.size()) + " values for " + std::to_string(needed));
}

std::string image_message(std::string_view tag, const Pixels& size, std::string_view file) {
  std::string image, message = tagged(tag);
  put_integer(image, kHeight, size.height);
  put_integer(image, kWidth, size.width);
  put_integer(image, kColorspace, size.channels);
  put_bytes(image, kEncodedImage, file);
  put_bytes(message, kImage, image);
  return message;
}

std::string plugin_metadata(std::string_view name, std::string_view content = {}) {
  std::string data, metadata;
  put_bytes(data, kPluginName, name);
  if (!content.empty()) put_bytes(data, kContent, content);
  put_bytes(metadata, kPluginData, data);
  return metadata;
}

std::string string_tensor(std::string_view text) {
  std::string dim, shape, tensor;
  put_integer(dim, kSize, 1);
  put_bytes(shape, kDim, dim);
  put_integer(tensor, kDtype, kDtString);
  put_bytes(tensor, kShape, shape);
  put_text(tensor, kStringValue, text);
  return tensor;
}

std::string hparams_value(std::string_view tag, int field, std::string_view session) {
  std::string content, message = tagged(tag);
  put_bytes(content, field, session);
  put_bytes(message, kMetadata, plugin_metadata("hparams", content));
  return message;
}

}  // namespace

Histogram histogram_of(std::span<const double> values) {
  if (values.empty()) throw UsageError("histogram: there are no values");
  const auto finite = [](double value) { return std::isfinite(value); };
  const auto others = values.size() - std::size_t(std::count_if(values.begin(), values.end(), finite));
  if (others > 0)
    throw UsageError("histogram: " + std::to_string(others) + " of " + std::to_string(values.size()) +
                     " values are not finite");
  Histogram histogram{.min = values[0], .max = values[0], .count = double(values.size())};
  std::map<std::size_t, double> counts;
  for (const double value : values) {
    histogram.min = std::min(histogram.min, value);
    histogram.max = std::max(histogram.max, value);
    histogram.sum += value;
    histogram.sum_of_squares += value * value;
    counts[bucket_of(value)] += 1;
  }
  const std::size_t first = counts.begin()->first, last = counts.rbegin()->first;
  histogram.limits.push_back(all_edges()[first]);
  histogram.buckets.push_back(0);
  for (std::size_t bucket = first; bucket <= last; ++bucket) {
    histogram.limits.push_back(all_edges()[bucket + 1]);
    histogram.buckets.push_back(counts.contains(bucket) ? counts.at(bucket) : 0);
  }
  return histogram;
}

std::string scalar_value(std::string_view tag, double value) {
  std::string message = tagged(tag);
  put_float(message, kSimpleValue, static_cast<float>(value));
  return message;
}

std::string image_value(std::string_view tag, const Pixels& pixels) {
  return image_message(tag, pixels, png_file(pixels));
}

std::string png_value(std::string_view tag, std::string_view file) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&image, file.data(), file.size()) == 0)
    throw UsageError(std::string("image: no PNG file: ") + image.message);
  const Pixels size{.height = int(image.height),
                    .width = int(image.width),
                    .channels = int(PNG_IMAGE_SAMPLE_CHANNELS(image.format)),
                    .values = {}};
  png_image_free(&image);
  return image_message(tag, size, file);
}

std::string histogram_value(std::string_view tag, const Histogram& histogram) {
  std::string histo, message = tagged(tag);
  put_double(histo, kMin, histogram.min);
  put_double(histo, kMax, histogram.max);
  put_double(histo, kNum, histogram.count);
  put_double(histo, kSum, histogram.sum);
  put_double(histo, kSumSquares, histogram.sum_of_squares);
  put_packed(histo, kBucketLimit, histogram.limits);
  put_packed(histo, kBucket, histogram.buckets);
  put_bytes(message, kHisto, histo);
  return message;
}

std::string text_value(std::string_view tag, std::string_view text) {
  std::string message = tagged(std::string(tag) + "/text_summary");
  put_bytes(message, kTensor, string_tensor(text));
  put_bytes(message, kMetadata, plugin_metadata("text"));
  return message;
}

std::string hparams_start_value(const Hyperparameters& hparams, double time) {
  std::string session;
  for (const auto& [name, held] : hparams) {
    std::string value, entry;
    if (const bool* const yes = std::get_if<bool>(&held)) put_integer(value, kYes, *yes);
    if (const double* const number = std::get_if<double>(&held)) put_double(value, kNumber, *number);
    if (const std::string* const text = std::get_if<std::string>(&held)) put_text(value, kText, *text);
    put_text(entry, kKey, name);
    put_bytes(entry, kEntryValue, value);
    put_bytes(session, kHparams, entry);
  }
  put_double(session, kStartTime, time);
  return hparams_value("_hparams_/session_start_info", kSessionStart, session);
}

std::string hparams_end_value(double time) {
  std::string session;
  put_integer(session, kStatus, kSuccess);
  put_double(session, kEndTime, time);
  return hparams_value("_hparams_/session_end_info", kSessionEnd, session);
}

std::string png_file(const Pixels& pixels) {
  check(pixels);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = png_uint_32(pixels.width);
  image.height = png_uint_32(pixels.height);
  image.format = pixels.channels == 1 ? PNG_FORMAT_GRAY : pixels.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  // Room for what deflate makes at most, so that it is compressed once.
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(size, '\0');
  if (png_image_write_to_memory(&image, file.data(), &size, 0, pixels.values.data(), 0, nullptr) == 0)
    throw Error(std::string("image: cannot be written as PNG: ") + image.message);
  file.resize(size);
  return file;
}

}  // namespace lockstep::metrics
