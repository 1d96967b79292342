#include "lockstep/device/out_of_memory.h"

#include "lockstep/base/text.h"

namespace lockstep::device {
namespace {

// What stands between two words of the text; "" without them.
std::string between(std::string_view text, std::string_view before, std::string_view after) {
  const std::size_t begin = text.find(before);
  if (begin == std::string_view::npos) return "";
  text.remove_prefix(begin + before.size());
  const std::size_t end = text.find(after);
  return end == std::string_view::npos ? "" : std::string(text.substr(0, end));
}

}  // namespace

std::string out_of_memory_line(std::string_view text, std::optional<int> rank) {
  const std::string who = (rank ? "rank " + std::to_string(*rank) + ": " : "") + "out of memory";
  const std::string asked = between(text, "Tried to allocate ", ". ");
  const std::string gpu = between(text, "GPU ", " has a total capacity of ");
  if (asked.empty() || gpu.empty()) return who + ": " + base::shown(text.substr(0, text.find('\n')));
  std::string line = who + " on cuda:" + gpu + ": asked for " + asked;
  const std::string capacity = between(text, " has a total capacity of ", " of which ");
  if (!capacity.empty()) line += ", free are " + between(text, " of which ", " is free") + " of " + capacity;
  const std::string handed_out = between(text, "Of the allocated memory ", " is allocated by PyTorch");
  // Between the two may stand how much is in the private pools of CUDA graphs.
  const std::string tail = between(text, " is allocated by PyTorch", " is reserved by PyTorch but unallocated");
  if (!handed_out.empty()) line += "; libtorch has handed out " + handed_out;
  if (const std::size_t and_at = tail.rfind("and "); !handed_out.empty() && and_at != std::string::npos)
    line += " and keeps " + tail.substr(and_at + 4) + " more, in blocks too small for it";
  return line + ": a smaller --batch-size, more --grad-accum-steps, or --amp";
}

}  // namespace lockstep::device
