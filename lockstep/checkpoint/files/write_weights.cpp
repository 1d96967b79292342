#include "lockstep/checkpoint/files/write_weights.h"

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/files/little_endian.h"
#include "lockstep/checkpoint/files/torch_names.h"
#include "lockstep/checkpoint/files/zip_writer.h"
#include "lockstep/checkpoint/store/tensor_header.h"

namespace lockstep::checkpoint {
namespace {

constexpr const char* kArchive = "archive";
constexpr const char* kEmptyDictionary = "ccollections\nOrderedDict\n)R";

// Opcodes of protocol 2, behind what is there.
class Pickler {
 public:
  Pickler& raw(const std::string& opcodes) {
    text_ += opcodes;
    return *this;
  }
  Pickler& text(const std::string& value) {
    text_ += 'X';
    put_little(text_, std::uint32_t(value.size()));
    text_ += value;
    return *this;
  }
  Pickler& global(const std::string& module, const std::string& name) { return raw("c" + module + "\n" + name + "\n"); }
  Pickler& integer(std::int64_t value) {
    if (value >= 0 && value <= 0xff) return raw(std::string("K") + char(value));
    if (value <= std::numeric_limits<std::int32_t>::max()) {
      text_ += 'J';
      put_little(text_, std::int32_t(value));
    } else {
      text_ += "\x8a\x08";
      put_little(text_, value);
    }
    return *this;
  }
  Pickler& tuple(const std::vector<std::int64_t>& values) {
    raw("(");
    for (const std::int64_t value : values) integer(value);
    return raw("t");
  }
  const std::string& bytes() const { return text_; }

 private:
  std::string text_;
};

std::uint64_t bytes_of_source(const TensorSource& source) {
  return StoredTensor{.dtype = source.dtype, .sizes = source.sizes}.bytes();
}

void add_tensor(Pickler& pickle, const std::string& name, const TensorSource& source, std::size_t key) {
  const char* const kind = storage_of_dtype(source.dtype);
  const std::uint64_t bytes = bytes_of_source(source);
  pickle.text(name).global("torch._utils", kind != nullptr ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3").raw("((");
  pickle.text("storage");
  // Where torch has no storage of the dtype, it is one of bytes.
  if (kind != nullptr)
    pickle.global("torch", kind);
  else
    pickle.global("torch.storage", "UntypedStorage");
  const std::uint64_t count = kind == nullptr ? bytes : bytes / element_bytes(source.dtype);
  pickle.text(std::to_string(key)).text("cpu").integer(std::int64_t(count)).raw("tQ");
  pickle.integer(0).tuple(source.sizes).tuple(row_major(source.sizes)).raw("\x89").raw(kEmptyDictionary);
  if (kind == nullptr) pickle.global("torch", torch_of_dtype(source.dtype));
  pickle.raw("tR");
}

void check_sources(const std::string& path, const TensorSources& tensors) {
  for (const auto& [name, source] : tensors) {
    const auto refuse = [&, &name = name](const std::string& what) {
      throw UsageError("writing '" + path + "': tensor '" + brief(name) + "' " + what);
    };
    if (torch_of_dtype(source.dtype) == nullptr) refuse("has a dtype that torch does not know");
    if (!is_utf8(name)) refuse("has a name that is no UTF-8");
  }
}

}  // namespace

TensorSources sources_of(const WeightsFile& file) {
  TensorSources sources;
  for (const auto& [name, tensor] : file.tensors())
    sources[name] = {.dtype = tensor.dtype, .sizes = tensor.sizes, .fill = [&file, &tensor = tensor](std::byte* out) {
                       file.read(tensor, out);
                     }};
  return sources;
}

void write_pt(const std::string& path, const TensorSources& tensors) {
  check_sources(path, tensors);
  Pickler pickle;
  pickle.raw("\x80\x02").raw(kEmptyDictionary).raw("(");
  std::size_t key = 0;
  for (const auto& [name, source] : tensors) add_tensor(pickle, name, source, key++);
  pickle.raw("u.");
  const std::string folder = std::string(kArchive) + "/";
  ZipWriter file(path);
  const auto add = [&](const std::string& name, const std::string& text) {
    file.add(folder + name, text.data(), text.size());
  };
  add("data.pkl", pickle.bytes());
  add("byteorder", "little");
  key = 0;
  for (const auto& [name, source] : tensors) {
    std::vector<std::byte> bytes(bytes_of_source(source));
    source.fill(bytes.data());
    file.add(folder + "data/" + std::to_string(key++), bytes.data(), bytes.size());
  }
  add("version", "3\n");
  file.commit();
}

void write_as_safetensors(const std::string& path, const TensorSources& tensors) {
  std::vector<TensorBytes> all;
  for (const auto& [name, source] : tensors)
    all.push_back({.name = name,
                   .dtype = source.dtype,
                   .sizes = source.sizes,
                   .strides = row_major(source.sizes),
                   .data = nullptr,
                   .fill = source.fill});
  write_tensors(path, std::move(all));
}

bool is_pt_name(const std::string& path) {
  for (const char* ending : {".pt", ".pth", ".pth.tar"})
    if (path.ends_with(ending)) return true;
  if (path.ends_with(".safetensors")) return false;
  throw UsageError("writing '" + path + "': a name that ends in .pt, .pth, .pth.tar or .safetensors expected");
}

void write_weights(const std::string& path, const TensorSources& tensors) {
  if (is_pt_name(path))
    write_pt(path, tensors);
  else
    write_as_safetensors(path, tensors);
}

}  // namespace lockstep::checkpoint
