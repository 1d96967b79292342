#include "lockstep/train/thumbnail.h"

#include <gtest/gtest.h>

#include "lockstep/data/codecs/png.h"

namespace lockstep::train {
namespace {

data::Image gradient(data::Size size, int channels) {
  data::Image image(size, channels);
  for (int row = 0; row < size.height; ++row)
    for (int byte = 0; byte < size.width * channels; ++byte)
      image.row(row)[byte] = std::uint8_t(40 + (row * 7 + byte * 3) % 60);
  return image;
}

data::Image read_back(const std::string& png) {
  return data::decode_png({reinterpret_cast<const std::uint8_t*>(png.data()), png.size()}, "thumbnail");
}

TEST(Thumbnail, SmallPicturesAreWhatTheyAre) {
  for (const int channels : {1, 3}) {
    const data::Image image = gradient({28, 20}, channels);
    data::Picture picture(gradient({28, 20}, channels));
    picture.mirror();
    const data::Image shown = read_back(thumbnail(picture));
    ASSERT_EQ(shown.view().size(), (data::Size{28, 20}));
    const int shown_channels = shown.view().channels;
    for (int row = 0; row < 28; ++row)
      for (int column = 0; column < 20; ++column)
        for (int channel = 0; channel < channels; ++channel)
          ASSERT_EQ(shown.view().row(row)[column * shown_channels + channel],
                    image.view().row(row)[(19 - column) * channels + channel]);
  }
}

TEST(Thumbnail, LargeOnesKeepTheirProportions) {
  EXPECT_EQ(read_back(thumbnail(data::Picture(gradient({300, 150}, 3)))).view().size(), (data::Size{64, 32}));
  EXPECT_EQ(read_back(thumbnail(data::Picture(gradient({1, 1000}, 1)))).view().size(), (data::Size{1, 64}));
  EXPECT_EQ(read_back(thumbnail(data::Picture(gradient({65, 64}, 3)))).view().size(), (data::Size{64, 63}));
}

}  // namespace
}  // namespace lockstep::train
