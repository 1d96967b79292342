#include "lockstep/checkpoint/store/manifest.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/digest.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view kFirstLine = "lockstep-checkpoint 1";
constexpr std::size_t kHashDigits = 32;

bool is_hash(std::string_view text) {
  return text.size() == kHashDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// One line, read word by word.
class LineReader {
 public:
  LineReader(std::string_view line, std::uint64_t offset, const std::string& path)
      : rest_(line), offset_(offset), path_(path) {}

  std::string_view word() {
    const std::size_t end = std::min(rest_.find(' '), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return word;
  }

  std::uint64_t number() {
    const std::string_view text = word();
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty())
      fail("has no number where one belongs");
    return value;
  }

  std::string hash() {
    const std::string_view text = word();
    if (!is_hash(text)) fail("has no hash of 32 hexadecimal digits where one belongs");
    return std::string(text);
  }

  /// The rest of the line.
  std::string name() {
    const json value = json::parse(rest_, nullptr, /*allow_exceptions=*/false);
    if (!value.is_string()) fail("has no name in quotes where one belongs");
    rest_ = {};
    return value.get<std::string>();
  }

  void finish() const {
    if (!rest_.empty()) fail("goes on behind its end");
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError("'" + path_ + "': the line " + what + ", at offset " + std::to_string(offset_));
  }

 private:
  std::string_view rest_;
  std::uint64_t offset_;
  const std::string& path_;
};

[[noreturn]] void refuse(const std::string& path, std::uint64_t offset, const std::string& what) {
  throw UsageError("'" + path + "': " + what + ", at offset " + std::to_string(offset));
}

// The lines without the last, which has their hash.
std::string_view checked_lines(std::string_view text, const std::string& path) {
  if (!text.starts_with(kFirstLine.substr(0, kFirstLine.size() - 1)))
    refuse(path, 0, "no manifest of a checkpoint, which begins with '" + std::string(kFirstLine) + "'");
  if (!text.starts_with(kFirstLine) || text.substr(kFirstLine.size(), 1) != "\n")
    refuse(path, kFirstLine.size() - 1, "a manifest of another version; this program reads version 1");
  const std::size_t last = 4 + kHashDigits + 1;  // "end HASH\n"
  const std::size_t begin = text.size() < last ? 0 : text.size() - last;
  const std::string_view line = text.substr(begin);
  if (!line.starts_with("end ") || line.back() != '\n' || !is_hash(line.substr(4, kHashDigits)) ||
      text[begin - 1] != '\n')
    refuse(path, text.size(), "the manifest is cut off: no line 'end HASH' ends it");
  if (digest_of(text.substr(0, begin)) != line.substr(4, kHashDigits))
    refuse(path, begin, "the manifest's lines have another hash than the one in its last line");
  return text.substr(0, begin);
}

void add_file(Manifest& manifest, LineReader& line) {
  FileEntry file{.bytes = line.number(), .hash = line.hash()};
  file.name = line.name();
  if (file.name.empty() || file.name == "." || file.name == ".." || file.name.find('/') != std::string::npos ||
      file.name.find('\0') != std::string::npos)
    line.fail("names a file that is none of this folder");
  manifest.files.push_back(std::move(file));
}

void add_piece(Manifest& manifest, LineReader& line) {
  if (manifest.files.empty()) line.fail("is of no file");
  FileEntry& file = manifest.files.back();
  Piece piece{.begin = line.number(), .end = line.number(), .hash = line.hash()};
  piece.name = line.name();
  if (piece.begin != (file.pieces.empty() ? 0 : file.pieces.back().end) || piece.end < piece.begin ||
      piece.end > file.bytes)
    line.fail("has a piece that does not begin where the one before ends, or is longer than the file");
  file.pieces.push_back(std::move(piece));
}

void add_line(Manifest& manifest, LineReader line) {
  const std::string_view kind = line.word();
  if (kind == "step")
    manifest.step = line.number();
  else if (kind == "weights")
    manifest.weights = line.hash();
  else if (kind == "file")
    add_file(manifest, line);
  else if (kind == "piece")
    add_piece(manifest, line);
  else
    line.fail("begins with none of step, weights, file, piece");
  line.finish();
}

}  // namespace

std::string format_manifest(const Manifest& manifest) {
  std::string text =
      std::string(kFirstLine) + "\nstep " + std::to_string(manifest.step) + "\nweights " + manifest.weights + "\n";
  for (const FileEntry& file : manifest.files) {
    text += "file " + std::to_string(file.bytes) + " " + file.hash + " " + json(file.name).dump() + "\n";
    for (const Piece& piece : file.pieces)
      text += "piece " + std::to_string(piece.begin) + " " + std::to_string(piece.end) + " " + piece.hash + " " +
              json(piece.name).dump() + "\n";
  }
  return text + "end " + digest_of(text) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const std::string_view lines = checked_lines(text, path);
  Manifest manifest;
  std::size_t begin = kFirstLine.size() + 1;
  while (begin < lines.size()) {
    const std::size_t end = lines.find('\n', begin);  // there is one: the last line began behind it
    add_line(manifest, LineReader(lines.substr(begin, end - begin), begin, path));
    begin = end + 1;
  }
  for (const FileEntry& file : manifest.files)
    if ((file.pieces.empty() ? 0 : file.pieces.back().end) != file.bytes)
      refuse(path, lines.size(), "the pieces of '" + base::shown(file.name) + "' end before the file");
  if (manifest.weights.empty() || manifest.files.empty())
    refuse(path, lines.size(), "a manifest without weights or files");
  return manifest;
}

}  // namespace lockstep::checkpoint
