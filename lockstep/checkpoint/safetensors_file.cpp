#include "lockstep/checkpoint/safetensors_file.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>

#include "lockstep/checkpoint/safetensors_header.h"
#include "lockstep/checkpoint/store/in_threads.h"

namespace lockstep::checkpoint {

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const std::string header = read_tensor_header(file_);
  const std::uint64_t data_start = kTensorHeaderStart + header.size();
  for (const TensorEntry& entry : parse_header(header, file_.size() - data_start, path)) {
    described_.emplace(entry.name, at::empty(entry.shape, at::TensorOptions(entry.dtype).device(at::kMeta)));
    offsets_.emplace(entry.name, data_start + entry.begin);
  }
}

void SafetensorsFile::read(Places places) const {
  // The longest first: the others fit in beside them.
  std::ranges::stable_sort(places, std::greater(), [](const auto& one) { return one.second.nbytes(); });
  in_threads(places.size(), [&](std::size_t i) { read(places[i].first, places[i].second); });
}

void SafetensorsFile::read(const std::string& name, const at::Tensor& place) const {
  const at::NoGradGuard no_grad;
  const at::Tensor plain = place.is_contiguous() ? place : at::empty(place.sizes(), place.scalar_type());
  file_.read(offsets_.at(name), plain.mutable_data_ptr(), plain.nbytes());
  if (!plain.is_same(place)) place.copy_(plain);
}

}  // namespace lockstep::checkpoint
