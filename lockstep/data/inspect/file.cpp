#include <filesystem>

#include "lockstep/base/text.h"
#include "lockstep/data/inspect/kinds.h"
#include "lockstep/data/readers/byte_source.h"
#include "lockstep/data/readers/cifar.h"
#include "lockstep/data/readers/idx.h"
#include "lockstep/data/readers/picture_files.h"

namespace lockstep::data {
namespace {

std::string first_bytes(const std::string& path) {
  std::string bytes(8, '\0');
  bytes.resize(open_bytes(path)->read(bytes.data(), bytes.size()));
  return bytes;
}

bool is_idx(const std::string& bytes) {
  return bytes.size() >= 4 && bytes.starts_with(std::string("\0\0\x08", 3)) && bytes[3] >= 1 && bytes[3] <= 4;
}

void look_at_idx(const std::string& path, int dimensions, Report& report) {
  const IdxBytes content = read_idx(path, dimensions);
  std::vector<std::string> shape;
  for (const std::int64_t size : content.shape) shape.push_back(std::to_string(size));
  report.kind = "IDX, " + base::join(shape, "x") + " bytes";
  SetPart& part = report.parts[0];
  if (dimensions == 1) {
    for (const std::uint8_t label : content.bytes) {
      while (part.classes.size() <= label) part.classes.push_back({std::to_string(part.classes.size()), 0});
      ++part.classes[label].pictures;
    }
  }
  if (dimensions != 2) part.pictures = content.shape[0];
  if (dimensions == 3) part.sizes[{int(content.shape[1]), int(content.shape[2])}] = content.shape[0];
}

void look_at_picture(const std::string& path, const InspectOptions& options, Report& report) {
  const PictureFacts facts = look_at_pictures({path}, options)[0];
  report.kind = "a picture";
  report.headers_only = options.quick;
  report.parts[0].pictures = 1;
  if (!facts.kind.empty()) report.parts[0].sizes[facts.size] = report.parts[0].kinds[facts.kind] = 1;
  if (!facts.damage.empty()) report.faults.push_back({path, facts.damage});
}

}  // namespace

std::optional<Report> inspect_file(const std::string& path, const InspectOptions& options) {
  const std::string name = std::filesystem::path(path).filename().string();
  Report report{.path = path, .parts = {SetPart{}}};
  std::error_code ignored;
  report.parts[0].bytes = std::filesystem::file_size(path, ignored);
  try {
    const std::string bytes = first_bytes(path);
    if (is_idx(bytes)) {
      report.kind = "IDX";
      look_at_idx(path, bytes[3], report);
    } else if ((name.starts_with("data_batch_") || name.starts_with("test_batch")) && name.ends_with(".bin")) {
      report.kind = "CIFAR-10 (binary), one file";
      add_pictures(load_cifar10_file(path), report.parts[0]);
    } else if (has_picture_ending(name) || bytes.starts_with("\xff\xd8\xff") || bytes.starts_with("\x89PNG")) {
      look_at_picture(path, options, report);
    } else {
      return std::nullopt;
    }
  } catch (const std::exception& error) {
    if (report.kind.empty()) throw;
    report.faults.push_back(fault_from(error, path));
  }
  return report;
}

}  // namespace lockstep::data
