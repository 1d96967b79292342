#include "lockstep/checkpoint/files/average.h"

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/files/compare.h"
#include "lockstep/checkpoint/files/elements.h"
#include "lockstep/checkpoint/store/tensor_header.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t kMostShown = 20;

void check_equal_headers(const std::vector<WeightsFile>& files) {
  for (const WeightsFile& file : files) {
    std::vector<std::string> found = compare_headers(files.front(), file).differences;
    if (found.empty()) continue;
    if (found.size() > kMostShown) {
      const std::string more = "and " + std::to_string(found.size() - kMostShown) + " more";
      found.resize(kMostShown);
      found.push_back(more);
    }
    throw UsageError("'" + file.path() + "' has other tensors than '" + files.front().path() +
                     "', so there is no mean: " + base::join(found, "; "));
  }
}

void fill_with_mean(const std::vector<WeightsFile>& files, const std::string& name, std::byte* out) {
  const StoredTensor& first = files.front().tensors().at(name);
  const std::size_t numbers = numbers_in(first.dtype, first.bytes());
  std::vector<double> sums(numbers);
  for (const WeightsFile& file : files) {
    file.read(file.tensors().at(name), out);
    for (std::size_t i = 0; i < numbers; ++i) sums[i] += number_at(first.dtype, out, i);
  }
  for (std::size_t i = 0; i < numbers; ++i) set_number(first.dtype, out, i, sums[i] / double(files.size()));
}

}  // namespace

TensorSources average_of(const std::vector<WeightsFile>& files) {
  if (files.empty()) throw UsageError("a mean of no files");
  check_equal_headers(files);
  TensorSources mean;
  for (const auto& [name, tensor] : files.back().tensors()) {
    if (tensor.dtype.starts_with("F8"))
      throw UsageError("'" + files.back().path() + "': '" + brief(name) + "' is " + tensor.dtype +
                       ", of which no mean is made; of F16, BF16, F32, F64 and C64 one is");
    TensorSource& source = mean[name] = {.dtype = tensor.dtype, .sizes = tensor.sizes, .fill = {}};
    if (has_means(tensor.dtype))
      source.fill = [&files, name = name](std::byte* out) { fill_with_mean(files, name, out); };
    else
      source.fill = [&file = files.back(), &tensor = tensor](std::byte* out) { file.read(tensor, out); };
  }
  return mean;
}

}  // namespace lockstep::checkpoint
