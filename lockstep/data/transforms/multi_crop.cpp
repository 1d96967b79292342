#include "lockstep/data/transforms/multi_crop.h"

#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/geometry.h"

namespace lockstep::data {
namespace {

Picture part_of(Picture picture, int top, int left, Size size) {
  picture.crop(top, left, size);
  return picture;
}

void add_five(const Picture& picture, Size size, std::vector<Picture>& crops) {
  const auto [height, width] = picture.size();
  const int bottom = height - size.height, right = width - size.width;
  for (const int top : {0, bottom}) {
    for (const int left : {0, right}) crops.push_back(part_of(picture, top, left, size));
  }
  Picture middle = picture;
  base::RandomStream unused(0, 0, 0);
  CenterCrop(size).apply(middle, unused);
  crops.push_back(std::move(middle));
}

}  // namespace

MultiCrop::MultiCrop(const char* name, Size size, SecondFive second_five)
    : name_(name), size_(size), second_five_(second_five) {
  if (size.height >= 1 && size.width >= 1) return;
  throw UsageError(std::string(name) + ": size " + to_string(size) + ", at least 1x1 expected");
}

std::vector<Picture> MultiCrop::apply(Picture picture) const {
  const Size have = picture.size();
  if (size_.height > have.height || size_.width > have.width) {
    throw UsageError(std::string(name_) + ": " + to_string(size_) + " out of a picture of " + to_string(have) +
                     "; choose a smaller crop or resize the picture before");
  }
  std::vector<Picture> crops;
  crops.reserve(std::size_t(count()));
  picture.pixels();  // made once, for all of them
  add_five(picture, size_, crops);
  if (second_five_ == SecondFive::mirrored) picture.mirror();
  if (second_five_ == SecondFive::upside_down) picture.replace(upside_down(picture.pixels()));
  if (second_five_ != SecondFive::none) add_five(picture, size_, crops);
  return crops;
}

}  // namespace lockstep::data
