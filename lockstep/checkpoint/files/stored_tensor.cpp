#include "lockstep/checkpoint/files/stored_tensor.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "lockstep/checkpoint/store/tensor_file.h"

namespace lockstep::checkpoint {
namespace {

bool lies_row_major(const StoredTensor& tensor) {
  const std::vector<std::int64_t> expected = row_major(tensor.sizes);
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (tensor.sizes[i] > 1 && tensor.strides[i] != expected[i]) return false;
  return true;
}

// Copies the elements one by one in the order of their indices.
void gather(const StoredTensor& tensor, const std::string& lying, std::byte* out) {
  const std::size_t element = element_bytes(tensor.dtype), count = tensor.bytes() / element;
  std::vector<std::int64_t> index(tensor.sizes.size());
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(out + i * element, lying.data() + at * element, element);
    for (std::size_t d = index.size(); d-- > 0;) {
      at += std::uint64_t(tensor.strides[d]);
      if (++index[d] < tensor.sizes[d]) break;
      at -= std::uint64_t(tensor.strides[d]) * std::uint64_t(index[d]);
      index[d] = 0;
    }
  }
}

void swap_bytes(const std::string& dtype, std::byte* data, std::uint64_t bytes) {
  const std::size_t element = dtype == "C64" ? 4 : element_bytes(dtype);  // a complex number is two
  if (element == 1) return;
  for (std::uint64_t at = 0; at < bytes; at += element) std::reverse(data + at, data + at + element);
}

}  // namespace

std::uint64_t StoredTensor::bytes() const {
  std::uint64_t bytes = element_bytes(dtype);
  for (const std::int64_t size : sizes) bytes *= std::uint64_t(size);
  return bytes;
}

std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t next = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    next *= std::max<std::int64_t>(sizes[i], 1);
  }
  return strides;
}

void read_tensor(const InputFile& file, const StoredTensor& tensor, std::byte* out) {
  const std::uint64_t bytes = tensor.bytes();
  if (bytes == 0) return;
  if (lies_row_major(tensor)) {
    file.read(tensor.offset, out, bytes);
  } else {
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < tensor.sizes.size(); ++i)
      last += std::uint64_t(tensor.sizes[i] - 1) * std::uint64_t(tensor.strides[i]);
    gather(tensor, file.bytes(tensor.offset, (last + 1) * element_bytes(tensor.dtype)), out);
  }
  if (tensor.big_endian) swap_bytes(tensor.dtype, out, bytes);
}

}  // namespace lockstep::checkpoint
