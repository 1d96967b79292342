#include "lockstep/checkpoint/store/verify.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/digest.h"
#include "lockstep/checkpoint/store/in_threads.h"
#include "lockstep/checkpoint/store/input_file.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::uint64_t kLargestManifest = 100'000'000;
constexpr std::uint64_t kReadChunk = std::uint64_t(1) << 17;  // a core hashes out of its own cache what it has read

// Compares one file with its entry. Any thread.
class FileCheck {
 public:
  FileCheck(std::string path, const FileEntry& entry) : path_(std::move(path)), entry_(entry), file_(path_) {
    const std::uint64_t size = std::min(file_.size(), entry_.bytes);
    while (there_ < entry_.pieces.size() && entry_.pieces[there_].end <= size) ++there_;
  }

  const std::string& path() const { return path_; }
  void drop_cache() const { file_.drop_cache(); }
  /// So many pieces, the first ones, are not cut off.
  std::size_t pieces() const { return there_; }

  /// Compares one of them, and adds it to `whole`, if given.
  std::optional<Damage> piece(std::size_t number, Digest* whole = nullptr) const {
    const Piece& piece = entry_.pieces[number];
    if (hash(piece, whole) == piece.hash) return {};
    return damage(piece.name, piece.begin, "is not what was written");
  }

  std::optional<Damage> size() const {
    if (there_ < entry_.pieces.size())
      return damage(
          entry_.pieces[there_].name, std::min(file_.size(), entry_.bytes),
          "ends here, after " + std::to_string(file_.size()) + " of " + std::to_string(entry_.bytes) + " bytes");
    if (file_.size() > entry_.bytes)
      return damage("", entry_.bytes,
                    "has " + std::to_string(file_.size() - entry_.bytes) + " bytes more than were written");
    return {};
  }

  // One pass over the pieces has found everything that the file's own hash could.
  std::optional<Damage> whole(const Digest& digest) const {
    if (digest.text() == entry_.hash) return {};
    return damage("", 0, "has another hash than its manifest says");
  }

 private:
  std::string hash(const Piece& piece, Digest* whole) const {
    thread_local std::vector<char> chunk(kReadChunk);
    Digest digest;
    for (std::uint64_t at = piece.begin; at < piece.end; at += kReadChunk) {
      const std::uint64_t bytes = std::min(kReadChunk, piece.end - at);
      file_.read(at, chunk.data(), bytes);
      digest.add(chunk.data(), bytes);
      if (whole != nullptr) whole->add(chunk.data(), bytes);
    }
    return digest.text();
  }

  Damage damage(const std::string& tensor, std::uint64_t offset, std::string what) const {
    return {path_, tensor, offset, std::move(what)};
  }

  const std::string path_;
  const FileEntry& entry_;
  const InputFile file_;
  std::size_t there_ = 0;
};

Damage unreadable(const std::string& file, const UsageError& error) {
  return {.file = file, .what = std::string("cannot be read: ") + error.what()};
}

void verify_file(const std::string& path, const FileEntry& entry, bool from_disk, std::vector<Damage>& found) {
  const FileCheck check(path, entry);
  if (from_disk) check.drop_cache();
  const std::size_t before = found.size();
  const auto add = [&](std::optional<Damage> damage) {
    if (damage) found.push_back(std::move(*damage));
  };
  Digest whole;
  for (std::size_t i = 0; i < check.pieces(); ++i) add(check.piece(i, &whole));
  add(check.size());
  if (found.size() == before && !entry.pieces.empty()) add(check.whole(whole));
}

// The manifest, unless it is the fault.
std::optional<Manifest> manifest_of(const std::string& path, std::vector<Damage>& found) {
  try {
    return read_manifest(path);
  } catch (const UsageError& error) {
    found.push_back({.file = path + "/" + kManifestName, .what = std::string("is damaged: ") + error.what()});
    return {};
  }
}

}  // namespace

std::string Damage::to_string() const {
  std::string text = "'" + base::shown(file) + "'";
  if (tensor.empty() && what.empty()) return text;
  text += tensor.empty() ? " " : ": tensor '" + base::shown(tensor) + "' ";
  return text + what + ", at offset " + std::to_string(offset);
}

Manifest read_manifest(const std::string& path) {
  const std::string file = path + "/" + kManifestName;
  return parse_manifest(InputFile(file).text(kLargestManifest), file);
}

std::vector<Damage> verify(const std::string& path, bool from_disk) {
  std::vector<Damage> found;
  if (from_disk) {
    try {
      InputFile(path + "/" + kManifestName).drop_cache();
    } catch (const UsageError&) {  // manifest_of() says it
    }
  }
  const std::optional<Manifest> manifest = manifest_of(path, found);
  if (!manifest) return found;
  for (const FileEntry& entry : manifest->files) {
    const std::string file = path + "/" + entry.name;
    try {
      verify_file(file, entry, from_disk, found);
    } catch (const UsageError& error) {
      found.push_back(unreadable(file, error));
    }
  }
  return found;
}

std::vector<Damage> verify_pieces(const std::string& path) {
  std::vector<Damage> found;
  const std::optional<Manifest> manifest = manifest_of(path, found);
  if (!manifest) return found;
  struct Task {
    const FileCheck* file;
    std::size_t piece;
    std::uint64_t bytes;
    std::optional<Damage> damage = {};
  };
  std::deque<FileCheck> files;  // they stay where they are
  std::vector<Task> tasks;
  for (const FileEntry& entry : manifest->files) {
    const std::string file = path + "/" + entry.name;
    try {
      const FileCheck& check = files.emplace_back(file, entry);
      for (std::size_t i = 0; i < check.pieces(); ++i)
        tasks.push_back({&check, i, entry.pieces[i].end - entry.pieces[i].begin});
      if (auto damage = check.size()) found.push_back(std::move(*damage));
    } catch (const UsageError& error) {
      found.push_back(unreadable(file, error));
    }
  }
  // The longest first: the others fit in beside them.
  std::ranges::stable_sort(tasks, std::greater(), &Task::bytes);
  in_threads(tasks.size(), [&](std::size_t i) {
    try {
      tasks[i].damage = tasks[i].file->piece(tasks[i].piece);
    } catch (const UsageError& error) {
      tasks[i].damage = unreadable(tasks[i].file->path(), error);
    }
  });
  for (Task& task : tasks)
    if (task.damage) found.push_back(std::move(*task.damage));
  std::ranges::stable_sort(found, {}, [](const Damage& one) { return std::tie(one.file, one.offset); });
  return found;
}

}  // namespace lockstep::checkpoint
