#include "lockstep/data/readers/folder_index.h"

#include <unistd.h>
#include <zlib.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/data/readers/byte_source.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "numbers are little-endian in the file");

// The file: this, the checksum of the rest as a number, the rest. Numbers are 64 bits; texts and lists begin with how
// long they are.
constexpr std::string_view kMagic = "lockstep image index 1\n";

class Writer {
 public:
  void put(std::uint64_t number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void put(std::string_view text) {
    put(text.size());
    bytes_ += text;
  }
  void put(const std::vector<std::string>& texts) {
    put(texts.size());
    for (const std::string& text : texts) put(std::string_view(text));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& file) : rest_(bytes), file_(file) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number())); }
  std::vector<std::string> texts() {
    std::vector<std::string> all;
    for (std::uint64_t left = number(); left > 0; --left) all.push_back(text());
    return all;
  }
  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest_.size()) fail("truncated");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  std::string_view rest() const { return rest_; }

  [[noreturn]] void fail(const char* what) const { throw UsageError("'" + file_ + "': " + what); }

 private:
  std::string_view rest_;
  const std::string& file_;
};

std::uint64_t checksum(std::string_view bytes) {
  return crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

IndexedFolder read_folder(Reader& in, std::size_t classes) {
  IndexedFolder folder{.path = in.text(), .label = std::int64_t(in.number())};
  if (std::uint64_t(folder.label) >= classes) in.fail("a label without class");
  folder.stamp.inode = in.number();
  folder.stamp.modified_ns = std::int64_t(in.number());
  folder.stamp.changed_ns = std::int64_t(in.number());
  folder.pictures = in.texts();
  folder.links = in.texts();
  return folder;
}

// Nothing when there is no such file or it is damaged.
std::optional<FolderIndex> read_index(const std::string& file) {
  std::error_code error;
  if (fs::status(file, error).type() == fs::file_type::not_found) return {};
  constexpr std::uint64_t kMost = 4ull << 30;  // some 100 million names
  const std::vector<std::uint8_t> bytes = read_bytes(file, kMost);
  try {
    return decode_index({bytes.begin(), bytes.end()}, file);
  } catch (const UsageError& damage) {
    base::tell(STDERR_FILENO, std::string("lockstep: image index ") + damage.what() + "; it is made anew\n");
    return {};
  }
}

void check_place(const std::string& root, const std::string& cache) {
  std::error_code error;
  const std::string set = fs::canonical(root, error).string();
  if (error) return;  // the walk says it better
  const std::string folder = fs::weakly_canonical(fs::absolute(cache).parent_path(), error).string();
  if (error || !folder.starts_with(set + "/")) return;
  throw UsageError("index file '" + cache + "': it would change the class folder that it is in; put it into '" + root +
                   "' or elsewhere");
}

}  // namespace

std::string encode(const FolderIndex& index) {
  Writer body;
  body.put(index.classes);
  body.put(index.folders.size());
  for (const IndexedFolder& folder : index.folders) {
    body.put(std::string_view(folder.path));
    body.put(std::uint64_t(folder.label));
    body.put(folder.stamp.inode);
    body.put(std::uint64_t(folder.stamp.modified_ns));
    body.put(std::uint64_t(folder.stamp.changed_ns));
    body.put(folder.pictures);
    body.put(folder.links);
  }
  Writer sum;
  sum.put(checksum(body.bytes()));
  return std::string(kMagic) + sum.bytes() + body.bytes();
}

FolderIndex decode_index(const std::string& bytes, const std::string& file) {
  Reader in(bytes, file);
  if (!std::string_view(bytes).starts_with(kMagic)) in.fail("no image index of this version");
  in.take(kMagic.size());
  const std::uint64_t sum = in.number();
  if (sum != checksum(in.rest())) in.fail("truncated or damaged, its checksum is wrong");
  FolderIndex index{.classes = in.texts()};
  for (std::uint64_t left = in.number(); left > 0; --left) {
    index.folders.push_back(read_folder(in, index.classes.size()));
  }
  if (!in.rest().empty()) in.fail("trailing bytes");
  return index;
}

FolderIndex cached_index(const std::string& root, const std::string& cache, std::int64_t now_ns) {
  check_place(root, cache);
  if (std::optional<FolderIndex> known = read_index(cache); known && is_current(*known, root)) {
    return std::move(*known);
  }
  FolderIndex index = walk_folders(root);
  if (is_settled(index, now_ns)) {
    const std::string bytes = encode(index);
    base::AtomicFile file(cache);
    file.write(bytes.data(), bytes.size());
    file.commit();
  }
  return index;
}

}  // namespace lockstep::data
