#include <algorithm>
#include <cmath>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/color.h"

namespace lockstep::data {
namespace {

struct Hsv {
  std::uint8_t hue, saturation, value;
};

std::uint8_t to_byte(int x) { return std::uint8_t(std::clamp(x, 0, 255)); }

// A. R. Smith, "Color gamut transform pairs", 1978; floats and doubles where Pillow has them.
Hsv to_hsv(const std::uint8_t* rgb) {
  const std::uint8_t top = std::max({rgb[0], rgb[1], rgb[2]}), bottom = std::min({rgb[0], rgb[1], rgb[2]});
  if (top == bottom) return {0, 0, top};
  const float range = float(top - bottom);
  const float saturation = range / float(top);
  const float red = float(top - rgb[0]) / range, green = float(top - rgb[1]) / range,
              blue = float(top - rgb[2]) / range;
  float hue = blue - green;
  if (rgb[0] != top) hue = rgb[1] == top ? float(2.0 + red - blue) : float(4.0 + green - red);
  hue = float(std::fmod(hue / 6.0 + 1.0, 1.0));
  return {to_byte(int(hue * 255.0)), to_byte(int(saturation * 255.0)), top};
}

void to_rgb(const Hsv& hsv, std::uint8_t* rgb) {
  if (hsv.saturation == 0) {
    std::fill_n(rgb, 3, hsv.value);
    return;
  }
  const float saturation = float(hsv.saturation / 255.0);
  const double turns = float(hsv.hue) * 6.0 / 255.0;
  const int sector = int(std::floor(turns));
  const float part = float(turns - float(sector));
  const auto share = [&](double x) { return to_byte(int(std::round(float(hsv.value) * (1.0 - x)))); };
  const std::uint8_t v = hsv.value;
  const std::uint8_t p = share(saturation);
  const std::uint8_t q = share(saturation * part);
  const std::uint8_t t = share(saturation * (1.0 - part));
  const std::uint8_t sectors[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
  std::copy_n(sectors[sector % 6], 3, rgb);
}

}  // namespace

Image adjust_hue(const ImageView& image, double factor) {
  if (!(factor >= -0.5 && factor <= 0.5)) {
    throw UsageError("adjust_hue: factor " + std::to_string(factor) + ", -0.5 to 0.5 expected");
  }
  if (image.channels == 1) return copy_of(image);
  const std::uint8_t turn = std::uint8_t(int(factor * 255));  // wraps, as the sum does
  Image out(image.size(), 3);
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      Hsv hsv = to_hsv(image.row(y) + 3 * x);
      hsv.hue = std::uint8_t(hsv.hue + turn);
      to_rgb(hsv, out.row(y) + 3 * x);
    }
  }
  return out;
}

}  // namespace lockstep::data
