#pragma once

// Whether a checkpoint is what was written.

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/checkpoint/store/manifest.h"

namespace lockstep::checkpoint {

/// One fault of a checkpoint.
struct Damage {
  std::string file;          ///< its path
  std::string tensor;        ///< that lies there; empty: none does
  std::uint64_t offset = 0;  ///< in the file, where what is damaged begins
  std::string what;

  /// "'checkpoints/step-00000012/model.safetensors': tensor 'fc.weight' is not what was written, at offset 312".
  std::string to_string() const;
};

/// Reads every byte of the checkpoint in folder `path` and compares it with the manifest; nothing when all is as it was
/// written. Each damaged tensor, file that is missing, cut off or too long is one entry. A damaged manifest is the only
/// entry, for then nothing says what the rest should be. Files that the manifest does not name are not looked at.
/// `from_disk`: not from memory in which the system keeps files. Any thread.
std::vector<Damage> verify(const std::string& path, bool from_disk = false);

/// The same on several threads, by the hashes of the pieces alone. No byte is outside of them: what the hash of a whole
/// file finds besides is a manifest that contradicts itself. For who is about to load.
std::vector<Damage> verify_pieces(const std::string& path);

/// The manifest of the checkpoint in folder `path`. UsageError naming file and offset when it is damaged or missing.
Manifest read_manifest(const std::string& path);

}  // namespace lockstep::checkpoint
