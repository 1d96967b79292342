#pragma once

// What TensorBoard shows under a tag, as messages (tensorflow/core/framework/summary.proto): each function makes one
// Summary.Value. Bytes of a text that are no UTF-8 become U+FFFD. Pure functions.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep::metrics {

/// A picture of 8 bits a channel: rows from the top, in a row pixel after pixel, in a pixel its channels.
struct Pixels {
  int height = 0;
  int width = 0;
  int channels = 3;  ///< 1 grey, 3 RGB, 4 RGB and alpha
  std::vector<std::uint8_t> values;
};

/// How values are distributed. Bucket i counts the values from limits[i - 1] on and below limits[i]; the first,
/// which is empty, gives the second its lower edge.
struct Histogram {
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_of_squares = 0;
  std::vector<double> limits;
  std::vector<double> buckets;
};

/// In the buckets of TensorFlow and PyTorch's SummaryWriter, whose edges grow by a tenth from 1e-12 on, to both sides
/// of 0. UsageError when there are no values or one is not finite.
Histogram histogram_of(std::span<const double> values);

/// As a 32-bit float.
std::string scalar_value(std::string_view tag, double value);

/// As a PNG file. UsageError when size, channels and number of values do not agree.
std::string image_value(std::string_view tag, const Pixels& pixels);

/// A PNG file as it is. UsageError when it is none.
std::string png_value(std::string_view tag, std::string_view file);

std::string histogram_value(std::string_view tag, const Histogram& histogram);

/// For the text plugin, which reads it as Markdown; its tag is "<tag>/text_summary", as PyTorch writes it.
std::string text_value(std::string_view tag, std::string_view text);

/// What a run was asked for, by name, for the hparams plugin, in the order of the names.
using Hyperparameters = std::map<std::string, std::variant<bool, double, std::string>>;
std::string hparams_start_value(const Hyperparameters& hparams, double time);

/// Its end, for the same.
std::string hparams_end_value(double time);

/// The picture as a PNG file. UsageError as of image_value().
std::string png_file(const Pixels& pixels);

}  // namespace lockstep::metrics
