#pragma once

// The checkpoints of a folder: step-00001234/ for each of them, and links to the last and the best.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

inline constexpr const char* kLastName = "last";
inline constexpr const char* kBestName = "best";

/// "step-00001234"; more digits where a step has more.
std::string step_name(std::uint64_t step);
/// The step of such a name; nothing for any other.
std::optional<std::uint64_t> step_of(std::string_view name);

/// The steps that have a checkpoint in `folder`, sorted; empty where there is no such folder. One that a killed
/// process was about to replace is there again (put_back()). Any thread.
std::vector<std::uint64_t> steps_in(const std::string& folder);

/// From the newest on: `last`, those before it, then those behind it, which a job that went back to an earlier one has
/// left. Pure.
std::vector<std::uint64_t> newest_first(std::vector<std::uint64_t> steps, std::optional<std::uint64_t> last);

/// The step that the link `name` in `folder` leads to; nothing when there is no such link, or it leads elsewhere.
std::optional<std::uint64_t> linked_step(const std::string& folder, const std::string& name);

/// Has the link `name` in `folder` lead to the checkpoint of `step`, from one instant to the next; on disk when this
/// returns. Error when the system refuses.
void link_step(const std::string& folder, const std::string& name, std::uint64_t step);

}  // namespace lockstep::checkpoint
