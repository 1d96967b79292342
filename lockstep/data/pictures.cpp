#include "lockstep/data/pictures.h"

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

std::string kind_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  std::ostringstream out;
  out << tensor.scalar_type() << " " << tensor.sizes();
  return out.str();
}

void check_pictures(const at::Tensor& images, const at::Tensor& labels) {
  const bool pixels = images.defined() && images.scalar_type() == at::kByte && images.device().is_cpu() &&
                      (images.dim() == 3 || (images.dim() == 4 && (images.size(1) == 1 || images.size(1) == 3)));
  if (!pixels)
    throw UsageError("pictures: " + kind_of(images) +
                     ", uint8 [N, height, width] or [N, 1 or 3, height, width] in CPU memory expected; numbers, which "
                     "cannot be augmented, go to data::tensors()");
  const bool whole_numbers = labels.defined() && labels.device().is_cpu() && labels.dim() == 1 &&
                             labels.size(0) == images.size(0) &&
                             at::isIntegralType(labels.scalar_type(), /*includeBool=*/false);
  if (!whole_numbers)
    throw UsageError("pictures: labels " + kind_of(labels) + ", integers [" + std::to_string(images.size(0)) +
                     "] in CPU memory expected");
}

}  // namespace

std::shared_ptr<const PictureBatches> pictures(std::shared_ptr<const PictureSet> set, Preparation preparation) {
  if (!set) throw UsageError("pictures: no set: the pointer to it is null");
  return std::make_shared<PictureBatches>(std::move(set), std::move(preparation.transforms), preparation.batch);
}

std::shared_ptr<const PictureBatches> pictures(const at::Tensor& images, const at::Tensor& labels, std::int64_t classes,
                                               Preparation preparation) {
  check_pictures(images, labels);
  const at::Tensor planes = images.dim() == 3 ? images.unsqueeze(1) : images;
  const at::Tensor pixels = planes.permute({0, 2, 3, 1}).contiguous();
  const at::Tensor numbers = labels.to(at::kLong).contiguous();
  const auto* first_pixel = pixels.const_data_ptr<std::uint8_t>();
  const auto* first_label = numbers.const_data_ptr<std::int64_t>();
  MemoryPictures::Content content{.size = {int(pixels.size(1)), int(pixels.size(2))},
                                  .channels = int(pixels.size(3)),
                                  .pixels = {first_pixel, first_pixel + pixels.numel()},
                                  .labels = {first_label, first_label + numbers.numel()},
                                  .classes = {}};
  for (std::int64_t label = 0; label < classes; ++label) content.classes.push_back(std::to_string(label));
  return pictures(MemoryPictures(std::move(content)), std::move(preparation));
}

}  // namespace lockstep::data
