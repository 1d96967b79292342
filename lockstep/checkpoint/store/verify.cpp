#include "lockstep/checkpoint/store/verify.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/digest.h"
#include "lockstep/checkpoint/store/input_file.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::uint64_t kLargestManifest = 100'000'000;
constexpr std::uint64_t kReadChunk = std::uint64_t(1) << 20;

// Compares one file with its entry.
class FileCheck {
 public:
  FileCheck(std::string path, const FileEntry& entry, std::vector<Damage>& found)
      : path_(std::move(path)), entry_(entry), found_(found), chunk_(kReadChunk) {}

  void run(bool from_disk) {
    const InputFile file(path_);
    if (from_disk) file.drop_cache();
    const std::size_t before = found_.size();
    const std::uint64_t size = std::min(file.size(), entry_.bytes);
    for (const Piece& piece : entry_.pieces) {
      if (piece.end > size) {  // the first that is not there
        damage(piece.name, size,
               "ends here, after " + std::to_string(file.size()) + " of " + std::to_string(entry_.bytes) + " bytes");
        return;
      }
      if (hash(file, piece) != piece.hash) damage(piece.name, piece.begin, "is not what was written");
    }
    if (file.size() > entry_.bytes)
      damage("", entry_.bytes, "has " + std::to_string(file.size() - entry_.bytes) + " bytes more than were written");
    // One pass over the pieces has found everything that the file's own hash could.
    if (found_.size() == before && entry_.pieces.size() > 0 && all_.text() != entry_.hash)
      damage("", 0, "has another hash than its manifest says");
  }

 private:
  std::string hash(const InputFile& file, const Piece& piece) {
    Digest digest;
    for (std::uint64_t at = piece.begin; at < piece.end; at += kReadChunk) {
      const std::uint64_t bytes = std::min(kReadChunk, piece.end - at);
      file.read(at, chunk_.data(), bytes);
      digest.add(chunk_.data(), bytes);
      all_.add(chunk_.data(), bytes);
    }
    return digest.text();
  }

  void damage(const std::string& tensor, std::uint64_t offset, std::string what) {
    found_.push_back({path_, tensor, offset, std::move(what)});
  }

  const std::string path_;
  const FileEntry& entry_;
  std::vector<Damage>& found_;
  std::vector<char> chunk_;
  Digest all_;
};

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
  Manifest manifest;
  try {
    if (from_disk) InputFile(path + "/" + kManifestName).drop_cache();
    manifest = read_manifest(path);
  } catch (const UsageError& error) {
    return {{.file = path + "/" + kManifestName, .what = std::string("is damaged: ") + error.what()}};
  }
  for (const FileEntry& entry : manifest.files) {
    const std::string file = path + "/" + entry.name;
    try {
      FileCheck(file, entry, found).run(from_disk);
    } catch (const UsageError& error) {
      found.push_back({.file = file, .what = std::string("cannot be read: ") + error.what()});
    }
  }
  return found;
}

}  // namespace lockstep::checkpoint
