#include "lockstep/checkpoint/store/tensor_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/digest.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::size_t kChunk = std::size_t(1) << 20;

// The format's name, that of c10::ScalarType, which hashes of weights have in them, and the size.
struct Dtype {
  const char* name;
  const char* in_torch;
  std::size_t bytes;
};
constexpr Dtype kDtypes[] = {
    {"F64", "Double", 8},
    {"F32", "Float", 4},
    {"F16", "Half", 2},
    {"BF16", "BFloat16", 2},
    {"C64", "ComplexFloat", 8},
    {"I64", "Long", 8},
    {"I32", "Int", 4},
    {"I16", "Short", 2},
    {"I8", "Char", 1},
    {"U64", "UInt64", 8},
    {"U32", "UInt32", 4},
    {"U16", "UInt16", 2},
    {"U8", "Byte", 1},
    {"BOOL", "Bool", 1},
    {"F8_E4M3", "Float8_e4m3fn", 1},
    {"F8_E5M2", "Float8_e5m2", 1},
};

const Dtype* find_dtype(const std::string& name) {
  for (const Dtype& dtype : kDtypes)
    if (name == dtype.name) return &dtype;
  return nullptr;
}

std::uint64_t bytes_of(const TensorBytes& tensor) {
  std::uint64_t bytes = element_bytes(tensor.dtype);
  for (const std::int64_t size : tensor.sizes) bytes *= std::uint64_t(size);
  return bytes;
}

bool is_row_major(const TensorBytes& tensor) {
  std::int64_t expected = 1;
  for (std::size_t i = tensor.sizes.size(); i-- > 0;) {
    if (tensor.sizes[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.sizes[i];
  }
  return true;
}

// A file that is written and hashed in one pass.
class HashedFile {
 public:
  explicit HashedFile(const std::string& path) : file_(path), name_(std::filesystem::path(path).filename().string()) {}

  void add(const void* data, std::size_t bytes) {
    file_.write(data, bytes);
    all_.add(data, bytes);
    piece_->add(data, bytes);
    size_ += bytes;
  }
  void end_piece(std::string name) {
    const std::uint64_t begin = entry_.pieces.empty() ? 0 : entry_.pieces.back().end;
    entry_.pieces.push_back({std::move(name), begin, size_, piece_->text()});
    piece_ = std::make_unique<Digest>();
  }
  FileEntry commit() {
    file_.commit();
    entry_.name = name_;
    entry_.bytes = size_;
    entry_.hash = all_.text();
    return std::move(entry_);
  }

 private:
  base::AtomicFile file_;
  std::string name_;
  FileEntry entry_;
  std::uint64_t size_ = 0;
  Digest all_;
  std::unique_ptr<Digest> piece_ = std::make_unique<Digest>();
};

// Another order of dimensions in memory (channels last) than in the file: collected row by row.
class RowMajor {
 public:
  RowMajor(const TensorBytes& tensor, HashedFile& file)
      : tensor_(tensor), file_(file), element_(element_bytes(tensor.dtype)) {}

  void write() {
    collected_.reserve(kChunk);
    walk(0, tensor_.data);
    flush();
  }

 private:
  void walk(std::size_t dimension, const std::byte* at) {
    if (dimension == tensor_.sizes.size()) return take(at);
    const std::ptrdiff_t step = std::ptrdiff_t(tensor_.strides[dimension]) * std::ptrdiff_t(element_);
    for (std::int64_t i = 0; i < tensor_.sizes[dimension]; ++i) walk(dimension + 1, at + i * step);
  }
  void take(const std::byte* at) {
    if (collected_.size() + element_ > kChunk) flush();
    collected_.insert(collected_.end(), at, at + element_);
  }
  void flush() {
    file_.add(collected_.data(), collected_.size());
    collected_.clear();
  }

  const TensorBytes& tensor_;
  HashedFile& file_;
  const std::size_t element_;
  std::vector<std::byte> collected_;
};

void write_data(const TensorBytes& tensor, HashedFile& file) {
  if (bytes_of(tensor) == 0) return;
  if (tensor.fill) {
    std::vector<std::byte> filled(bytes_of(tensor));
    tensor.fill(filled.data());
    return file.add(filled.data(), filled.size());
  }
  if (!is_row_major(tensor)) return RowMajor(tensor, file).write();
  // In chunks, so that both hashes find their bytes in the cache.
  const std::uint64_t bytes = bytes_of(tensor);
  for (std::uint64_t done = 0; done < bytes; done += kChunk)
    file.add(tensor.data + done, std::size_t(std::min<std::uint64_t>(kChunk, bytes - done)));
}

bool is_json_text(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

// By falling element size, then by name: each tensor is aligned to its element size.
std::vector<HeaderEntry> lay_out(std::vector<TensorBytes>& tensors, const std::string& path) {
  const auto refuse = [&](const TensorBytes& tensor, const char* why) {
    throw UsageError("writing '" + path + "': tensor '" + base::shown(tensor.name) + "' " + why);
  };
  std::ranges::sort(tensors, {}, [](const TensorBytes& tensor) { return tensor.name; });
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (find_dtype(tensors[i].dtype) == nullptr) refuse(tensors[i], "has a dtype that safetensors does not know");
    if (!is_json_text(tensors[i].name)) refuse(tensors[i], "has a name that is no UTF-8");
    if (tensors[i].name == "__metadata__") refuse(tensors[i], "has a name that the format keeps for itself");
    if (i > 0 && tensors[i].name == tensors[i - 1].name) refuse(tensors[i], "is there twice");
  }
  std::ranges::stable_sort(tensors, std::greater(),
                           [](const TensorBytes& tensor) { return element_bytes(tensor.dtype); });
  std::vector<HeaderEntry> entries;
  std::uint64_t next = 0;
  for (const TensorBytes& tensor : tensors) {
    entries.push_back({tensor.name, tensor.dtype, tensor.sizes, next, next + bytes_of(tensor)});
    next = entries.back().end;
  }
  return entries;
}

}  // namespace

std::string header_text(const std::vector<HeaderEntry>& entries, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  if (!metadata.empty()) root["__metadata__"] = metadata;
  for (const HeaderEntry& entry : entries)
    root[entry.name] = {{"dtype", entry.dtype}, {"shape", entry.sizes}, {"data_offsets", {entry.begin, entry.end}}};
  std::string text = root.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

std::size_t element_bytes(const std::string& dtype) {
  const Dtype* const found = find_dtype(dtype);
  return found == nullptr ? 0 : found->bytes;
}

FileEntry write_tensors(const std::string& path, std::vector<TensorBytes> tensors) {
  const std::string header = header_text(lay_out(tensors, path), {});
  const std::uint64_t length = header.size();
  HashedFile file(path);
  file.add(&length, sizeof length);
  file.add(header.data(), header.size());
  file.end_piece("");
  for (const TensorBytes& tensor : tensors) {
    write_data(tensor, file);
    file.end_piece(tensor.name);
  }
  return file.commit();
}

FileEntry write_text(const std::string& path, const std::string& text) {
  HashedFile file(path);
  file.add(text.data(), text.size());
  file.end_piece("");
  return file.commit();
}

std::string weights_hash(std::vector<TensorBytes> tensors, const FileEntry& file) {
  std::map<std::string, std::string> hashes;
  for (const Piece& piece : file.pieces) hashes.emplace(piece.name, piece.hash);
  std::ranges::sort(tensors, {}, [](const TensorBytes& tensor) { return tensor.name; });
  std::string list;
  for (const TensorBytes& tensor : tensors) {
    list += tensor.name + '\n' + find_dtype(tensor.dtype)->in_torch;
    for (const std::int64_t size : tensor.sizes) list += ' ' + std::to_string(size);
    list += '\n' + hashes.at(tensor.name) + '\n';
  }
  return digest_of(list);
}

}  // namespace lockstep::checkpoint
