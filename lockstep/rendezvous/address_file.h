#pragma once

// A file in which rank 0 tells the others where it listens, for as long as they meet: "file:///path" of init(). On one
// machine or a file system that several share.

#include <optional>
#include <string>

#include "lockstep/base/unique_fd.h"

namespace lockstep::rendezvous {

class AddressFile {
 public:
  /// The file must not exist, or be empty. It is locked while this object lives, so UsageError says whether another
  /// rank 0 meets there now or an earlier start, whose rank 0 was killed, has left it. `address` has no line end.
  AddressFile(std::string path, const std::string& address);
  AddressFile(const AddressFile&) = delete;
  AddressFile& operator=(const AddressFile&) = delete;
  /// Removes it.
  ~AddressFile();

  /// What is in it; nothing while it is not whole. An earlier start may have left it. UsageError where it is no such
  /// file, or cannot be read.
  static std::optional<std::string> read(const std::string& path);

 private:
  const std::string path_;
  base::UniqueFd fd_;
};

}  // namespace lockstep::rendezvous
