#include "lockstep/data/fetch/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/fetch/part_file.h"
#include "lockstep/data/fetch/sha256.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

void make_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw Error("making the folder '" + base::shown(path.string()) + "': " + error.message());
}

// Gone with the object, unless it has been renamed.
class AsideFolder {
 public:
  explicit AsideFolder(std::string path) : path_(std::move(path)) {
    fs::remove_all(path_);
    make_folders(path_);
  }
  AsideFolder(const AsideFolder&) = delete;
  ~AsideFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

class TarReader {
 public:
  explicit TarReader(const std::string& path) : path_(path), archive_(archive_read_new()) {
    if (!archive_) throw Error("libarchive cannot start");
    check(archive_read_support_filter_gzip(archive_.get()));
    check(archive_read_support_format_tar(archive_.get()));
    check(archive_read_open_filename(archive_.get(), path.c_str(), 1 << 16));
  }

  /// nullptr at the end.
  archive_entry* next() {
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(archive_.get(), &entry);
    if (result == ARCHIVE_EOF) return nullptr;
    check(result);
    return entry;
  }

  /// The next piece of the entry's content; the end: nothing.
  std::string_view content() {
    const void* bytes = nullptr;
    std::size_t count = 0;
    la_int64_t offset = 0;
    const int result = archive_read_data_block(archive_.get(), &bytes, &count, &offset);
    if (result == ARCHIVE_EOF) return {};
    check(result);
    if (offset != done_) refuse("a file with holes");
    done_ += la_int64_t(count);
    return {static_cast<const char*>(bytes), count};
  }

  void begin_content() { done_ = 0; }

  [[noreturn]] void refuse(const std::string& what) const {
    throw UsageError("'" + base::shown(path_) + "': " + base::shown(what));
  }

 private:
  void check(int result) {
    if (result == ARCHIVE_OK) return;
    const char* text = archive_error_string(archive_.get());
    refuse(std::string("damaged archive") + (text != nullptr ? std::string(" (") + text + ")" : ""));
  }

  struct Free {
    void operator()(archive* reader) const { archive_read_free(reader); }
  };
  std::string path_;
  std::unique_ptr<archive, Free> archive_;
  la_int64_t done_ = 0;
};

// The name of the entry below `top`.
std::string checked_name(const TarReader& reader, archive_entry* entry, const std::string& top) {
  const char* text = archive_entry_pathname(entry);
  const std::string name = text != nullptr ? text : "";
  const auto type = archive_entry_filetype(entry);
  const bool plain = (type == AE_IFREG || type == AE_IFDIR) && archive_entry_hardlink(entry) == nullptr;
  const std::string objection =
      plain ? entry_objection(name, top) : "a link or device; only files and folders are unpacked";
  if (!objection.empty()) reader.refuse("entry '" + name + "': " + objection);
  return fs::path(name).lexically_normal().lexically_relative(top).string();
}

std::string write_file(TarReader& reader, const fs::path& path) {
  make_folders(path.parent_path());
  base::AtomicFile file(path.string());
  Sha256 sum;
  reader.begin_content();
  for (std::string_view piece = reader.content(); !piece.empty(); piece = reader.content()) {
    file.write(piece.data(), piece.size());
    sum.add(piece.data(), piece.size());
  }
  file.commit();
  return sum.digits();
}

}  // namespace

std::string entry_objection(const std::string& name, const std::string& top) {
  const fs::path path(name);
  if (path.is_absolute()) return "an absolute name";
  if (std::ranges::any_of(path, [](const fs::path& part) { return part == ".."; })) return "'..' in its name";
  const fs::path clean = path.lexically_normal();
  return clean.begin() != clean.end() && *clean.begin() == top ? "" : "not below '" + top + "'";
}

void unpack(const std::string& archive, const std::string& top, const std::string& target) {
  TarReader reader(archive);
  const AsideFolder aside(target + ".part");
  std::vector<FileSum> sums;
  while (archive_entry* entry = reader.next()) {
    const std::string name = checked_name(reader, entry, top);
    if (archive_entry_filetype(entry) == AE_IFDIR) {
      make_folders(aside / name);
    } else {
      sums.push_back({name, write_file(reader, aside / name)});
    }
  }
  base::AtomicFile file((aside / kSumsFile).string());
  const std::string text = sums_text(sums);
  file.write(text.data(), text.size());
  file.commit();
  fs::rename(aside.path(), target);
  sync_folder(fs::path(target).parent_path());
}

}  // namespace lockstep::data
