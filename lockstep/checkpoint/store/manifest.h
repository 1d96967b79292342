#pragma once

// MANIFEST: what the other files of a checkpoint are, and by which hashes that can be found out. Lines of text:
//
//   lockstep-checkpoint 1
//   step 1234
//   weights 5f0c…                         state::tensors_hash() of the model
//   file 4216 90ab… "model.safetensors"   bytes, XXH3-128
//   piece 0 312 77e1… ""                  of the file above it, from byte to byte: its header, then each tensor
//   piece 312 2872 0c4d… "fc1.weight"
//   end d0f3…                             of all lines above
//
// Names are JSON strings. World size is no part of it. Pure functions, thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

struct Piece {
  std::string name;  ///< of a tensor; empty: the header, or the whole of a file without tensors
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string hash;
  bool operator==(const Piece&) const = default;
};

struct FileEntry {
  std::string name;
  std::uint64_t bytes = 0;
  std::string hash;
  std::vector<Piece> pieces;  ///< one after the other, without holes, up to the file's end
  bool operator==(const FileEntry&) const = default;
};

struct Manifest {
  std::uint64_t step = 0;
  std::string weights;
  std::vector<FileEntry> files;
  bool operator==(const Manifest&) const = default;
};

inline constexpr const char* kManifestName = "MANIFEST";

std::string format_manifest(const Manifest& manifest);

/// UsageError naming `path` and the offset when it is cut off, its hash is not that of its lines, it is of another
/// version, or a line says what no manifest can: pieces that leave holes, a file that lies in another folder.
Manifest parse_manifest(std::string_view text, const std::string& path);

}  // namespace lockstep::checkpoint
