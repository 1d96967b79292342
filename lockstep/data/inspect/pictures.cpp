#include "lockstep/data/inspect/pictures.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/data/codecs/decode.h"
#include "lockstep/data/codecs/header.h"
#include "lockstep/data/readers/byte_source.h"

namespace lockstep::data {
namespace {

PictureFacts look_at(const std::string& path, bool quick) {
  PictureFacts facts;
  try {
    std::error_code ignored;
    const auto bytes = std::filesystem::file_size(path, ignored);
    facts.bytes = ignored ? 0 : bytes;
    const ImageHeader header = read_image_header(path);
    facts.size = header.size;
    facts.kind = header.kind;
    if (!quick) read_image(path);
  } catch (const std::exception& error) {
    facts.damage = fault_from(error, path).reason;
  }
  return facts;
}

}  // namespace

std::vector<PictureFacts> look_at_pictures(const std::vector<std::string>& paths, const InspectOptions& options) {
  std::vector<PictureFacts> facts(paths.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < paths.size(); i = next++) facts[i] = look_at(paths[i], options.quick);
  };
  const int threads = options.threads > 0 ? options.threads : base::usable_cores();
  std::vector<std::jthread> others;
  for (int i = 1; i < std::min(threads, int(paths.size())); ++i) others.emplace_back(work);
  work();
  others.clear();  // joins
  return facts;
}

}  // namespace lockstep::data
