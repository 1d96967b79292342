#include "lockstep/evaluation/tensors.h"

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::evaluation {
namespace {

std::string text_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::string sizes;
  for (const std::int64_t size : tensor.sizes()) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  return std::string(c10::toString(tensor.scalar_type())) + " [" + sizes + "]";
}

bool is_picture(const at::Tensor& tensor) {
  if (!tensor.defined() || (tensor.dim() != 2 && tensor.dim() != 3) || tensor.numel() == 0) return false;
  const std::int64_t channels = tensor.dim() == 2 ? 1 : tensor.size(0);
  const bool known = channels == 1 || channels == 3 || channels == 4;
  return known && (tensor.scalar_type() == at::kByte || at::isFloatingType(tensor.scalar_type()));
}

at::Tensor as_bytes(const at::Tensor& picture) {
  if (picture.scalar_type() == at::kByte) return picture;
  return (picture.to(at::kFloat).nan_to_num(0) * 255).clamp(0, 255).to(at::kByte);
}

}  // namespace

metrics::Pixels pixels(const at::Tensor& picture) {
  if (!is_picture(picture))
    throw UsageError("pixels: " + text_of(picture) +
                     "; a picture is [channels, height, width] with 1, 3 or 4 channels, or [height, width], of uint8 "
                     "or floats from 0 to 1");
  const at::Tensor planes = picture.dim() == 2 ? picture.detach().unsqueeze(0) : picture.detach();
  const at::Tensor rows = as_bytes(planes.cpu()).permute({1, 2, 0}).contiguous();
  const std::uint8_t* const first = rows.const_data_ptr<std::uint8_t>();
  return {.height = int(rows.size(0)),
          .width = int(rows.size(1)),
          .channels = int(rows.size(2)),
          .values = {first, first + rows.numel()}};
}

std::vector<double> values(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_complex())
    throw UsageError("values: " + text_of(tensor) + "; real numbers wanted");
  const at::Tensor flat = tensor.detach().cpu().to(at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

}  // namespace lockstep::evaluation
