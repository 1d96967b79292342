#pragma once

// Which files of a folder are pictures, and in which order torchvision takes them.

#include <string>
#include <vector>

namespace lockstep::data {

/// Names, sorted by their bytes. A link counts as what it leads to; one that leads nowhere, as a file.
struct Listing {
  std::vector<std::string> folders;
  std::vector<std::string> files;
  std::vector<std::string> links;  ///< those among the files
};

/// Whether a file of this name is taken for a picture: .jpg, .jpeg, .png, upper or lower case.
bool has_picture_ending(const std::string& name);

/// Whether it is a picture to torchvision but of a kind that we cannot read: .bmp, .pgm, .ppm, .tif, .tiff, .webp.
bool has_ending_of_other_kind(const std::string& name);

/// UsageError when the folder cannot be read, and when it cannot be known of an entry whether it is a folder (a link
/// into a place without permission, or in a circle).
Listing list_folder(const std::string& path);

struct PictureFiles {
  std::vector<std::string> pictures;        ///< those that we read
  std::vector<std::string> of_other_kinds;  ///< that torchvision reads and we cannot
};

/// The pictures in `path` and all folders below it: folders sorted by their paths, files by their names.
/// UsageError for a folder that cannot be read and for a link that leads back into itself.
PictureFiles pictures_below(const std::string& path);

}  // namespace lockstep::data
