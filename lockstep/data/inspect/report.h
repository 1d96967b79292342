#pragma once

// What `lockstep data inspect` found.

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "lockstep/data/image.h"

namespace lockstep::data {

struct ClassCount {
  std::string name;
  std::int64_t pictures = 0;
};

/// By the number of pixels.
struct SmallerSize {
  bool operator()(Size a, Size b) const;
};
using SizeCounts = std::map<Size, std::int64_t, SmallerSize>;

/// One of train, val, test; or the whole set, with the name "".
struct SetPart {
  std::string name;
  std::int64_t pictures = 0;                  ///< damaged ones too
  std::vector<ClassCount> classes;            ///< of the pictures, when they have classes
  SizeCounts sizes;                           ///< of the pictures whose header could be read
  std::map<std::string, std::int64_t> kinds;  ///< of the same: "JPEG colour"
  std::uint64_t bytes = 0;                    ///< of all files
};

/// A damaged file, an empty class, a folder that cannot be read.
struct Fault {
  std::string path;
  std::string reason;
};

/// From an error's message, which names a path ("'x': empty", "cannot open 'x': no such file") or is about `path`:
/// the reason does not name it again.
Fault fault_from(const std::string& message, const std::string& path);

/// The same from the error, in words also when memory was not enough.
Fault fault_from(const std::exception& error, const std::string& path);

struct Report {
  std::string path;
  std::string kind;  ///< "ImageFolder", "CIFAR-10 (binary)", ...
  std::vector<SetPart> parts;
  std::vector<Fault> faults;
  std::vector<std::string> notes;  ///< what training would not like though nothing is damaged, a line each
  bool headers_only = false;       ///< pictures in files of their own were not decoded
};

/// The size in the middle, the lower one of two. `sizes` must not be empty.
Size median(const SizeCounts& sizes);

/// For a person, several lines; one for each note and fault, at the end. Names are shown by base::shown().
std::string report_as_text(const Report& report);

/// The same as a JSON object; file names that are no UTF-8 have U+FFFD for the bytes that are none.
std::string report_as_json(const Report& report);

}  // namespace lockstep::data
